"""Hard attention by several estimators beside soft attention: the tables of docs/results/hard-attention.md."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from caption import checkpoint
from tools.documents import table, write_sections
from tools.reproduce import flickr8k
from tools.reproduce.deletion import deletion, test_photos
from tools.reproduce.models import NUMBERS, Model, Run, arguments, digest, read_runs, trained, write_runs
from tools.reproduce.runs import CONFIGS, run, test

ESTIMATORS = {
    "paper": "the paper's text",
    "authors": "the authors' weights",
    "averaged": "the authors' constants, averaged over captions",
    "leave_one_out": "leave-one-out, four samples",
}
"""Titles of the configurations in `configs/estimators`."""
AT_TEST = ("expectation", "argmax", "sample")


class Task(NamedTuple):
    """A data set, with configurations of soft and of hard attention."""

    name: str
    regions: str | None
    """The folder of stored regions; None: models learn from images."""
    on: tuple[str, ...]
    """Arguments that train the soft model on, as long and as fast as the hard ones that start from it."""

    def models(self) -> dict[str, Model]:
        """From a soft model, and from scratch."""
        soft, hard = f"{self.name}_soft", f"{self.name}_hard"
        titles = ESTIMATORS.items()
        return {
            "soft": Model("soft", (soft,), regions=self.regions),
            "soft_on": Model("soft, trained on", (soft,), "soft", self.regions, more=self.on),
            **{
                name: Model(f"hard, {title}", (hard, f"estimators/{name}"), "soft", self.regions)
                for name, title in titles
            },
            **{
                f"{name}_from_scratch": Model(
                    f"hard, {title}; from scratch", (soft, f"estimators/{name}"), regions=self.regions
                )
                for name, title in titles
            },
        }


def _trained_on(epochs: int, rate: float) -> tuple[str, ...]:
    return (
        f"--trainer.max_epochs={epochs}",
        f"--model.optimizer.init_args.lr={rate}",
        f"--model.scheduler.init_args.T_max={epochs}",
    )


SHAPES = Task("shapes", None, (*_trained_on(4, 5.0e-4), "--model.encoder_learning_rate=5.0e-4"))
FLICKR8K = Task("flickr8k", "features", _trained_on(4, 1.0e-4))


def main(options: argparse.Namespace, more: list[str]) -> None:
    """Train and score what is not published yet, and write all that is into the document."""
    task = SHAPES if options.data is None else FLICKR8K
    models = task.models()
    published = options.document.with_name(f"hard_on_{task.name}.json")
    runs = read_runs(published, models, more)
    out = options.out or Path(f"runs/{task.name}")
    common = [*_data(task, options, out), *more]
    missing = [
        (name, seed)
        for seed in options.seeds
        for name in options.models or models
        if (name, seed) not in runs
    ]
    if missing and task.regions is not None:
        configs = ["--config", str(CONFIGS / f"{task.name}_soft.yaml")]
        run("features", *configs, "--out", str(out / task.regions), *flickr8k.data_arguments(options.data))
    for name, seed in missing:
        folder = trained(models, out, name, seed, common)
        mine = arguments(models, out, name, seed, common)
        scored = _scored(task, options.data, folder, mine, hard=not name.startswith("soft"))
        runs |= read_runs(published, models, more)  # another of these commands may have written some
        runs[name, seed] = {"digest": digest(models, name, more), "more": more, **scored}
        write_runs(published, models, runs)
    text = report(task, runs)
    print(text)
    write_sections(options.document, {f"hard_on_{task.name}": text})


def _data(task: Task, options: argparse.Namespace, out: Path) -> list[str]:
    if task is SHAPES:
        return ["--data.reader.init_args.folder", str(out / "scenes")]
    return flickr8k.data_arguments(options.data)


def _scored(task: Task, data: Path, folder: Path, mine: list[str], hard: bool) -> Run:
    """Scores on the test split, of hard attention read in its three ways; photos get the beam that is best on dev."""
    scored: Run = {}
    if task is FLICKR8K:
        scored["beam"], scored["dev"] = flickr8k.best_beam(data, folder, mine)
        mine = [*mine, f"--model.search.init_args.beam_size={scored['beam']}"]
    scored["test"] = {}
    for how in AT_TEST if hard else ("soft",):
        chosen = ["--model.at_test", how] if hard else []
        file = folder / f"test_{how}.json"
        scored["test"][how] = test(folder, file, [*mine, *chosen, "--verbose", "false"])["scores"]
    best = folder / "best.ckpt"
    file = folder / "deletion.json"
    scored["deletion"] = deletion(checkpoint.load(best), test_photos(best))
    return scored


def report(task: Task, runs: Mapping[tuple[str, int], Run]) -> str:
    """A row for each model and way of testing: mean over the seeds, and each seed's own number."""
    models = task.models()
    numbers = {
        name: form for name, form in NUMBERS.items() if any(name in _scores(run) for run in runs.values())
    }
    rows = []
    for name, model in models.items():
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
    seeds = sorted({seed for _, seed in runs})
    data = " --data DATA" if task is FLICKR8K else ""
    more = sorted({" ".join(run["more"]) for run in runs.values()} - {""})
    command = " ".join(["python -m tools.reproduce hard" + data, "--seeds", *map(str, seeds), *more])
    entropies = [_scores(run)["attention_entropy_max"] for run in runs.values()]
    return (
        f"Written by `{command}`: test split; mean over the seeds (each seed). log L = "
        f"{max(entropies, default=math.nan):.2f} nats. Faithfulness: how much lower the probability of a word is, on "
        "the mean, while regions lose their weight in the order of attention instead of at random (100 images).\n\n"
        f"{table(head, rows)}"
    )


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
