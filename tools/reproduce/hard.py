"""Hard attention by several estimators beside soft attention: the tables of docs/results/hard-attention.md."""

from __future__ import annotations

import argparse
import functools
import math
import statistics
from collections.abc import Mapping
from pathlib import Path

from caption import checkpoint
from tools.documents import table, write_sections
from tools.reproduce import flickr8k
from tools.reproduce.deletion import deletion, test_photos
from tools.reproduce.models import NUMBERS, Model, Run
from tools.reproduce.runs import test
from tools.reproduce.tasks import Task, command, complete, task_of

ESTIMATORS = {
    "paper": "the paper's text",
    "authors": "the authors' weights",
    "averaged": "the authors' constants, averaged over captions",
    "leave_one_out": "leave-one-out, four samples",
}
"""Titles of the configurations in `configs/estimators`."""
AT_TEST = ("expectation", "argmax", "sample")


def _trained_on(epochs: int, rate: float) -> tuple[str, ...]:
    return (
        f"--trainer.max_epochs={epochs}",
        f"--model.optimizer.init_args.lr={rate}",
        f"--model.scheduler.init_args.T_max={epochs}",
    )


ON = {
    "shapes": (*_trained_on(4, 5.0e-4), "--model.encoder_learning_rate=5.0e-4"),
    "flickr8k": _trained_on(4, 1.0e-4),
}
"""Arguments that train the soft model on, as long and as fast as the hard ones that start from it."""


def models(task: Task) -> dict[str, Model]:
    """Hard attention from a soft model and from scratch, and soft attention."""
    hard = f"{task.name}_hard"
    titles = ESTIMATORS.items()
    return {
        "soft": task.soft("soft"),
        "soft_on": task.soft("soft, trained on")._replace(warm_start="soft", more=ON[task.name]),
        **{
            name: Model(f"hard, {title}", (hard, f"estimators/{name}"), "soft", task.regions)
            for name, title in titles
        },
        **{
            f"{name}_from_scratch": task.soft(f"hard, {title}; from scratch", f"estimators/{name}")
            for name, title in titles
        },
    }


def main(options: argparse.Namespace, more: list[str]) -> None:
    """Train and score what is not published yet, and write all that is into the document."""
    task = task_of(options)
    published = options.document.with_name(f"hard_on_{task.name}.json")
    runs = complete(models(task), published, options, more, functools.partial(_scored, options.data))
    text = report(task, runs)
    print(text)
    write_sections(options.document, {f"hard_on_{task.name}": text})


def _scored(data: Path | None, name: str, folder: Path, mine: list[str]) -> Run:
    """Scores on the test split, of hard attention read in its three ways; photos get the beam that is best on dev."""
    scored: Run = {}
    if data is not None:
        scored["beam"], scored["dev"] = flickr8k.best_beam(data, folder, mine)
        mine = [*mine, f"--model.search.init_args.beam_size={scored['beam']}"]
    scored["test"] = {}
    soft = name.startswith("soft")
    for how in ("soft",) if soft else AT_TEST:
        chosen = [] if soft else ["--model.at_test", how]
        file = folder / f"test_{how}.json"
        scored["test"][how] = test(folder, file, [*mine, *chosen, "--verbose", "false"])["scores"]
    best = folder / "best.ckpt"
    file = folder / "deletion.json"
    scored["deletion"] = deletion(checkpoint.load(best), test_photos(best))
    return scored


def report(task: Task, runs: Mapping[tuple[str, int], Run]) -> str:
    """A row for each model and way of testing: mean over the seeds, and each seed's own number."""
    numbers = {
        name: form for name, form in NUMBERS.items() if any(name in _scores(run) for run in runs.values())
    }
    rows = []
    for name, model in models(task).items():
        seeds = [seed for key, seed in sorted(runs) if key == name]
        for how in _scores_by_way(runs[name, seeds[0]]) if seeds else ():
            of_seeds = [_scores_by_way(runs[name, seed])[how] for seed in seeds]
            cells = [
                _each([scores[number] for scores in of_seeds], digits)
                for number, (_, digits) in numbers.items()
            ]
            faithful = how in ("soft", "expectation")
            gains = [_gain(runs[name, seed]) for seed in seeds] if faithful else []
            rows.append(
                [model.title, "–" if how == "soft" else how, *cells, _each(gains, 3) if gains else ""]
            )
    head = ["", "at test", *(title for title, _ in numbers.values()), "faithfulness"]
    entropies = [_scores(run)["attention_entropy_max"] for run in runs.values()]
    return (
        f"Written by `{command('hard', task, dict(runs))}`: test split; mean over the seeds (each seed). log L = "
        f"{max(entropies, default=math.nan):.2f} nats. Faithfulness: how much lower the probability of a word is, on "
        "the mean, while regions lose their weight in the order of attention instead of at random (100 images).\n\n"
        f"{table(head, rows)}{_on_dev(task, runs)}"
    )


def _on_dev(task: Task, runs: Mapping[tuple[str, int], Run]) -> str:
    """The scores of the split on which the beam of each run was chosen; nothing for a task that chooses none."""
    numbers = {name: NUMBERS[name] for name in ("BLEU-4", "CIDEr", "NLL")}
    rows = []
    for name, model in models(task).items():
        found = [run for key, run in sorted(runs.items()) if key[0] == name and "dev" in run]
        chosen = [run["dev"][str(run["beam"])] for run in found]
        if chosen:
            cells = [
                _each([scores[number] for scores in chosen], digits)
                for number, (_, digits) in numbers.items()
            ]
            rows.append([model.title, *cells, ", ".join(str(run["beam"]) for run in found)])
    if not rows:
        return ""
    head = ["", *(title for title, _ in numbers.values()), "beam"]
    return f"\n\nDevelopment split, each run with its best beam:\n\n{table(head, rows)}"


def _scores_by_way(run: Run) -> dict[str, dict[str, float]]:
    by_way: dict[str, dict[str, float]] = run["test"]
    return by_way


def _scores(run: Run) -> dict[str, float]:
    return next(iter(_scores_by_way(run).values()))


def _gain(run: Run) -> float:
    deleted = run["deletion"]
    words = deleted["words"]
    gains = [random - own for random, own in zip(deleted["random"], deleted["attention"], strict=True)]
    return sum(gain * count for gain, count in zip(gains, words, strict=True)) / sum(words)


def _each(values: list[float], digits: int) -> str:
    own = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.mean(values):.{digits}f} ({own})"
