"""Without attention, soft and hard on Flickr8k, from several seeds: the table of docs/results.md."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from caption.metrics.evaluation import evaluate
from caption.metrics.files import match_images, read_captions
from tools.documents import table, write_sections
from tools.reproduce.runs import CONFIGS, fit, run, test


class Model(NamedTuple):
    """A row of the table."""

    title: str
    configs: tuple[str, ...]
    """Files of `configs`, one laid over the other, without suffix."""
    warm_start: str | None = None
    """The model of the same seed from which the training starts."""


MODELS = {
    "show_and_tell": Model("no attention (Show and Tell)", ("flickr8k_show_and_tell",)),
    "soft": Model("soft", ("flickr8k_soft",)),
    "hard": Model("hard, from soft, decoded by expectation", ("flickr8k_hard",), warm_start="soft"),
}
BEAMS = (3, 5, 7, 10)
"""Of these, each model gets the one with the highest mean BLEU-4 over its seeds on the dev split."""
UNPENALISED = "BLEU-4 without brevity penalty"
NUMBERS = {
    "BLEU-1": 3,
    "BLEU-2": 3,
    "BLEU-3": 3,
    "BLEU-4": 3,
    UNPENALISED: 3,
    "CIDEr": 3,
    "ROUGE-L": 3,
    "NLL": 3,
    "attention_entropy": 2,
}
"""Scores and their decimals."""
HEADS = {"NLL": "NLL per word", "attention_entropy": "H[α] (log L = 3.89)"}
PUBLISHED = [
    ["Xu et al. 2015, soft (VGG)", "0.67", "0.448", "0.299", "0.195"],
    ["Xu et al. 2015, hard (VGG)", "0.67", "0.457", "0.314", "0.213"],
]
"""The paper is said to leave the brevity penalty out."""


def main(options: argparse.Namespace, more: list[str]) -> None:
    """Train and test all models with all seeds, and write their scores into the document."""
    features = str(options.out / "features")
    common = _data(options.data, options.weights)
    run("features", "--config", str(CONFIGS / "flickr8k_soft.yaml"), "--out", features, *common)
    common += ["--data.features", features, *more]
    wanted = dict.fromkeys(
        name for each in options.models for name in (MODELS[each].warm_start, each) if name
    )
    arguments: dict[str, list[list[str]]] = {name: [] for name in wanted}
    for seed in options.seeds:
        for name in wanted:
            mine = [
                part for config in MODELS[name].configs for part in ("-c", str(CONFIGS / f"{config}.yaml"))
            ]
            mine += [*common, "--seed_everything", str(seed)]
            arguments[name].append(mine)
            warm = MODELS[name].warm_start
            start = (
                [] if warm is None else [f"--model.warm_start={_folder(options, warm, seed) / 'best.ckpt'}"]
            )
            fit(_folder(options, name, seed), [*mine, *start])
    rows = []
    for name in options.models:
        folders = [_folder(options, name, seed) for seed in options.seeds]
        runs = list(zip(folders, arguments[name], strict=True))
        dev = _splits(options.data, test="dev")
        bleu = {
            beam: [_tested(folder, f"dev_beam{beam}", mine, beam, dev)["BLEU-4"] for folder, mine in runs]
            for beam in BEAMS
        }
        beam = max(BEAMS, key=lambda each: statistics.mean(bleu[each]))
        found = [_tested(folder, f"test_beam{beam}", mine, beam) for folder, mine in runs]
        for folder, scores in zip(folders, found, strict=True):
            scores[UNPENALISED] = unpenalised(options.data, folder / f"test_beam{beam}_captions.json")
        rows.append([f"{MODELS[name].title}, beam {beam}", *spreads(found)])
    text = report(rows, options.seeds)
    print(text)
    write_sections(options.document, {"flickr8k": text})


def spreads(found: Sequence[Mapping[str, float]]) -> list[str]:
    """Mean ± standard deviation over the seeds of each of `NUMBERS`; a dash for what a model does not have."""
    cells = []
    for name, digits in NUMBERS.items():
        values = [each[name] for each in found if name in each]
        spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.{digits}f}{spread}" if values else "–")
    return cells


def report(rows: list[list[str]], seeds: Sequence[int]) -> str:
    """The section of the document."""
    head = ["", *(HEADS.get(name, name) for name in NUMBERS)]
    published = [[*row, *[""] * (len(head) - len(row))] for row in PUBLISHED]
    return (
        "Written by `python -m tools.reproduce flickr8k --data DATA --weights mobilenet_v2_imagenet_features.pth "
        f"--seeds {' '.join(map(str, seeds))}`: test split, mean ± standard deviation over {len(seeds)} seeds.\n\n"
        f"{table(head, [*rows, *published])}"
    )


def unpenalised(data: Path, captions: Path) -> float:
    """BLEU-4 of a file of captions without the brevity penalty, as papers before 2015 computed it."""
    references = read_captions(str(data / "Flickr8k.token.txt"))
    candidates = match_images(read_captions(str(captions)), references)
    theirs = {image: references.captions[image] for image in candidates}
    score = evaluate(candidates, theirs, metrics=["BLEU"], brevity_penalty=False)["BLEU-4"]
    assert score is not None
    return score


def _data(root: Path, weights: str) -> list[str]:
    return [
        f"--data.reader.init_args.captions={root / 'Flickr8k.token.txt'}",
        f"--data.reader.init_args.images={root / 'images'}",
        _splits(root),
        f"--model.encoder.init_args.weights={weights}",
    ]


def _splits(root: Path, test: str = "test") -> str:
    """The argument that names the lists of images. A beam is chosen with the dev split in place of the test split."""
    lists = {"train": "train", "val": "dev", "test": test}
    files = {split: str(root / f"Flickr_8k.{name}Images.txt") for split, name in lists.items()}
    return f"--data.reader.init_args.splits={json.dumps(files)}"


def _folder(options: argparse.Namespace, name: str, seed: int) -> Path:
    folder: Path = options.out / f"{name}_{seed}"
    return folder


def _tested(folder: Path, name: str, arguments: list[str], beam: int, *more: str) -> dict[str, float]:
    """The scores of a run with one beam size; with its captions they are kept beside the checkpoint."""
    search = f"--model.search.init_args.beam_size={beam}"
    scores: dict[str, float] = test(folder, folder / f"{name}.json", [*arguments, search, *more])["scores"]
    return scores
