"""Models on Flickr8k, from several seeds: the tables of docs/results/flickr8k.md."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caption.metrics.caption_files import match_images, read_captions
from caption.metrics.evaluation import evaluate
from tools.documents import mean_and_deviation, table, write_sections
from tools.reproduce.curves import draw
from tools.reproduce.models import Model, Run, arguments, digest, read_runs, trained, write_runs
from tools.reproduce.runs import CONFIGS, curve, run, test, trained_seconds

PAPER = {
    "show_and_tell": Model("no attention (Show and Tell)", ("flickr8k_show_and_tell",)),
    "soft": Model("soft", ("flickr8k_soft",)),
    "hard": Model("hard, from soft, decoded by expectation", ("flickr8k_hard",), warm_start="soft"),
}
"""The paper's models, whose captions of the test split are scored."""
STEPS = {
    "label_smoothing": Model("label smoothing", ("flickr8k_soft", "training/label_smoothing")),
    "weight_tying": Model("tied weights", ("flickr8k_soft", "training/weight_tying")),
    "scheduled_sampling": Model("scheduled sampling", ("flickr8k_soft", "training/scheduled_sampling")),
    "ema": Model("averaged weights", ("flickr8k_soft", "training/ema")),
    "top_down": Model("top-down attention", ("flickr8k_soft", "training/top_down")),
    "fine_grid": Model(
        "finer grid (17x17)", ("flickr8k_soft", "training/fine_grid"), regions="fine_grid_features"
    ),
    "two_levels": Model(
        "two levels (17x17, 9x9)", ("flickr8k_soft", "training/two_levels"), regions="two_levels_features"
    ),
    "guided": Model(
        "guided attention, from soft", ("flickr8k_soft", "training/guided_attention"), warm_start="soft"
    ),
    "self_critical": Model(
        "self-critical, from guided", ("flickr8k_soft", "training/self_critical"), warm_start="guided"
    ),
    "fine_tuned": Model(
        "fine-tuned encoder, guided, from guided",
        ("flickr8k_soft", "training/guided_attention", "training/fine_tuning"),
        warm_start="guided",
        regions=None,
    ),
    "guided_larger": Model(
        "larger input (321 pixels), guided, from soft",
        ("flickr8k_soft", "training/guided_attention", "training/larger_input"),
        warm_start="soft",
        regions="larger_features",
    ),
    "self_critical_guided": Model(
        "self-critical and guided, from guided",
        ("flickr8k_soft", "training/self_critical_guided"),
        warm_start="guided",
    ),
    "self_critical_guided_larger": Model(
        "larger input, self-critical and guided, from guided",
        ("flickr8k_soft", "training/self_critical_guided", "training/larger_input"),
        warm_start="guided_larger",
        regions="larger_features",
    ),
    "smoothed_largest": Model(
        "largest input (385 pixels), mirrored, attention smoothed, from the last",
        ("flickr8k_soft", "training/smoothed_attention", "training/largest_input"),
        warm_start="self_critical_guided_larger",
        regions="largest_features",
        mirrored="largest_mirrored_features",
    ),
    "bleu_largest": Model(
        "BLEU-4 in the reward, too, from the last",
        ("flickr8k_soft", "training/bleu_reward", "training/largest_input"),
        warm_start="smoothed_largest",
        regions="largest_features",
        mirrored="largest_mirrored_features",
    ),
}
"""Steps beyond the paper, one at a time over soft attention or over another step. They are judged on the dev split
alone."""
MODELS = PAPER | STEPS
REGIONS = {
    "features": ("flickr8k_soft",),
    "larger_features": ("flickr8k_soft", "training/larger_input"),
    "largest_features": ("flickr8k_soft", "training/largest_input"),
    "largest_mirrored_features": ("flickr8k_soft", "training/largest_input"),
    "fine_grid_features": ("flickr8k_soft", "training/fine_grid"),
    "two_levels_features": ("flickr8k_soft", "training/two_levels"),
}
"""The configurations with which regions are stored, by folder."""
MIRRORED = {model.mirrored for model in MODELS.values() if model.mirrored is not None}
"""The folders whose photos are mirrored."""
BEAMS = (3, 5, 7)
"""Of these, a run gets the one with the highest BLEU-4 on the dev split."""
UNPENALISED = "BLEU-4 without brevity penalty"
METEOR = "METEOR-1.5"
BLEU = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
NUMBERS = dict.fromkeys([*BLEU, UNPENALISED, METEOR, "CIDEr", "ROUGE-L", "NLL"], 3) | {"attention_entropy": 2}
"""Scores and their decimals."""
HEADS = {"NLL": "NLL per word", "attention_entropy": "H[α] (log L = 4.39)"}
PUBLISHED = [
    ["Xu et al. 2015, soft (VGG)", "", "", "0.67", "0.448", "0.299", "0.195", "0.195", "0.189"],
    ["Xu et al. 2015, hard (VGG)", "", "", "0.67", "0.457", "0.314", "0.213", "0.213", "0.203"],
]
"""The paper is said to leave the brevity penalty out."""


def main(options: argparse.Namespace, more: list[str]) -> None:
    """Train and score what is not published yet, and write all that is into the document."""
    published = options.document.with_name("flickr8k.json")
    runs = read_runs(published, MODELS, more)
    common = [*data_arguments(options.data), *more]
    missing = [
        (name, seed)
        for seed in options.seeds
        for name in MODELS
        if name in options.models and (name, seed) not in runs
    ]
    for regions in dict.fromkeys(store for name, _ in missing for store in regions_of(name)):
        configs = [
            part for config in REGIONS[regions] for part in ("--config", str(CONFIGS / f"{config}.yaml"))
        ]
        mirrored = ["--mirrored"] if regions in MIRRORED else []
        store = ["--out", str(options.out / regions)]
        run("features", *configs, *store, *data_arguments(options.data), *mirrored)
    for name, seed in missing:
        folder = trained(MODELS, options.out, name, seed, common)
        runs[name, seed] = {
            "digest": digest(MODELS, name, more),
            "more": more,
            "seconds": trained_seconds(folder),
            "epochs": curve(folder),
            **scored(options.data, folder, name, arguments(MODELS, options.out, name, seed, common)),
        }
        write_runs(published, MODELS, runs)
        _report(options.document, runs)
    _report(options.document, runs)


def regions_of(name: str) -> list[str]:
    """The folders of stored regions that a model and those that it starts from learn from."""
    model = MODELS[name]
    before = [] if model.warm_start is None else regions_of(model.warm_start)
    return [*before, *(store for store in (model.regions, model.mirrored) if store is not None)]


def scored(data: Path, folder: Path, name: str, mine: list[str]) -> Run:
    """The run's scores on the dev split with each beam; on the test split with the best, for a model of the paper."""
    beam, dev = best_beam(data, folder, mine)
    run: Run = {"beam": beam, "dev": dev}
    if name in PAPER:
        run["test"] = _tested(folder, f"test_beam{beam}", mine, beam)
        run["test"] |= further_scores(data, folder / f"test_beam{beam}_captions.json")
    return run


def best_beam(data: Path, folder: Path, mine: list[str]) -> tuple[int, dict[str, dict[str, float]]]:
    """The beam size with the highest BLEU-4 on the dev split, and the scores there with each."""
    dev = {
        str(beam): _tested(folder, f"dev_beam{beam}", mine, beam, _splits(data, test="dev")) for beam in BEAMS
    }
    return max(BEAMS, key=lambda beam: dev[str(beam)]["BLEU-4"]), dev


# -- the document ------------------------------------------------------------------------------------------------


def _report(document: Path, runs: Mapping[tuple[str, int], Run]) -> None:
    sections = {"flickr8k": paper_table(runs), "flickr8k_steps": steps_table(runs)}
    write_sections(document, sections)
    draw(
        {MODELS[name].title: _of(runs, name, "epochs") for name in MODELS},
        document.with_name("learning_curves.png"),
    )


def _of(runs: Mapping[tuple[str, int], Run], name: str, part: str) -> list[Any]:
    return [runs[model, seed][part] for model, seed in sorted(runs) if model == name]


def paper_table(runs: Mapping[tuple[str, int], Run]) -> str:
    """The scores of the paper's models on the test split."""
    rows = [
        [
            MODELS[name].title,
            str(len(tests)),
            ", ".join(map(str, _of(runs, name, "beam"))),
            *(
                mean_and_deviation([scores[number] for scores in tests if number in scores], digits)
                for number, digits in NUMBERS.items()
            ),
        ]
        for name in PAPER
        if (tests := _of(runs, name, "test"))
    ]
    head = ["", "seeds", "beam", *(HEADS.get(name, name) for name in NUMBERS)]
    rows += [[*row, *[""] * (len(head) - len(row))] for row in PUBLISHED]
    return (
        "Test split, mean ± standard deviation over seeds. The paper is said to leave the brevity penalty out.\n\n"
        f"{table(head, rows)}{_settings(runs)}"
    )


def steps_table(runs: Mapping[tuple[str, int], Run]) -> str:
    """The scores of all models on the dev split, and the difference to soft attention of the same seed."""
    rows = []
    for name, model in MODELS.items():
        seeds = [seed for model, seed in sorted(runs) if model == name]
        if not seeds:
            continue
        own = {seed: _best(runs[name, seed]) for seed in seeds}
        cells = [
            mean_and_deviation([own[seed][number] for seed in seeds], 3) for number in ("BLEU-4", "CIDEr")
        ]
        for number in ("BLEU-4", "CIDEr"):
            both = [
                own[seed][number] - _best(runs["soft", seed])[number]
                for seed in seeds
                if ("soft", seed) in runs
            ]
            cells.append(mean_and_deviation(both, 3, signed=True) if name != "soft" else "")
        with_maps = [scores for scores in own.values() if "attention_entropy" in scores]
        cells.append(mean_and_deviation([scores["attention_entropy"] for scores in with_maps], 2))
        if with_maps:  # all seeds have one grid
            cells[-1] += f" of {with_maps[0]['attention_entropy_max']:.2f}"
        minutes = statistics.mean(runs[name, seed]["seconds"] for seed in seeds) / 60
        rows.append([model.title, str(len(seeds)), *cells, f"{minutes:.0f}"])
    head = ["", "seeds", "BLEU-4", "CIDEr", "BLEU-4 − soft", "CIDEr − soft", "H[α] of log L", "minutes"]
    return f"Dev split, each run with its best beam.\n\n{table(head, rows)}"


def _best(run: Run) -> Mapping[str, float]:
    scores: Mapping[str, float] = run["dev"][str(run["beam"])]
    return scores


def _settings(runs: Mapping[tuple[str, int], Run]) -> str:
    more = sorted({" ".join(run["more"]) for run in runs.values()} - {""})
    return f"\n\nFurther arguments: {', '.join(f'`{options}`' for options in more)}." if more else ""


# -- scores ------------------------------------------------------------------------------------------------------


def further_scores(data: Path, captions: Path) -> dict[str, float]:
    """Scores that tests do not give, of a file of captions: METEOR 1.5, where there is Java, and BLEU-4 without the
    brevity penalty, as papers before 2015 computed it."""
    references = read_captions(str(data / "Flickr8k.token.txt"))
    candidates = match_images(read_captions(str(captions)), references)
    theirs = {image: references.captions[image] for image in candidates}
    plain = evaluate(candidates, theirs, metrics=["BLEU"], brevity_penalty=False)
    scores = {UNPENALISED: plain["BLEU-4"], METEOR: evaluate(candidates, theirs, metrics=[METEOR])[METEOR]}
    return {name: score for name, score in scores.items() if score is not None}


def data_arguments(root: Path) -> list[str]:
    return [
        f"--data.reader.init_args.captions={root / 'Flickr8k.token.txt'}",
        f"--data.reader.init_args.images={root / 'images'}",
        _splits(root),
    ]


def _splits(root: Path, test: str = "test") -> str:
    """The argument that names the lists of images. A beam is chosen with the dev and the test split exchanged."""
    lists = {"train": "train", "val": {"test": "dev", "dev": "test"}[test], "test": test}
    files = {split: str(root / f"Flickr_8k.{name}Images.txt") for split, name in lists.items()}
    return f"--data.reader.init_args.splits={json.dumps(files)}"


def _tested(folder: Path, name: str, mine: list[str], beam: int, *more: str) -> dict[str, float]:
    """The scores of a run with one beam size; with its captions they are kept beside the checkpoint."""
    search = f"--model.search.init_args.beam_size={beam}"
    scores: dict[str, float] = test(folder, folder / f"{name}.json", [*mine, search, *more])["scores"]
    return scores
