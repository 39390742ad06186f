"""The doubly stochastic term measured: the tables of docs/results/doubly-stochastic.md."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from caption import checkpoint
from caption.analysis.photo_pointing import read_boxes
from caption.analysis.pointing_game import ground
from caption.analysis.reference_attention import attend_references
from caption.captioner import Captioner
from caption.metrics.caption_files import read_captions
from tools.documents import mean_and_deviation, table, write_sections
from tools.reproduce import flickr8k
from tools.reproduce.models import NUMBERS
from tools.reproduce.runs import CONFIGS, fit, run, test, trained_seconds

WEIGHTS = {"soft": "0", "doubly_stochastic_tenth": "0.1", "doubly_stochastic": "1"}
"""λ by model: the soft one, and configurations of `configs/training` over it."""
COLUMNS = NUMBERS | {
    "attention_evenness": ("evenness", 3),
    "attention_unseen": ("regions hardly seen", 3),
    "minutes": ("minutes", 0),
}
"""Titles and decimals of scores, as in `NUMBERS`."""
BOXES = ("photo_boxes.json", "photo_boxes_unseen.json")
"""Beside the document: boxes of photos of Flickr8k's development split, see `tools.photo_pointing`."""
Scores = dict[str, float]


def main(options: argparse.Namespace, more: list[str]) -> None:
    """Train and test all models with all seeds, and write their scores into the document."""
    if options.photos is not None and options.data is None:
        sys.exit("--photos needs --data, the folder of Flickr8k: their captions are there")
    data_set = "shapes" if options.data is None else "flickr8k"
    out = options.out or Path(f"runs/{data_set}")
    common = ["--data.reader.init_args.folder", str(out / "scenes")]
    if options.data is not None:
        common = flickr8k.data_arguments(options.data)
        configs = ["--config", str(CONFIGS / "flickr8k_soft.yaml")]
        run("features", *configs, "--out", str(out / "features"), *common)
        common += ["--data.features", str(out / "features")]
    scores: dict[str, list[Scores]] = {}
    for seed in options.seeds:
        for name in WEIGHTS:
            configs = [f"{data_set}_soft", *([] if name == "soft" else [f"training/{name}"])]
            files = [part for config in configs for part in ("-c", str(CONFIGS / f"{config}.yaml"))]
            mine = [*files, *common, *more, "--seed_everything", str(seed)]
            folder = out / f"{name}_{seed}"
            fit(folder, mine)
            scores.setdefault(name, []).append(_scored(folder, mine, options))
    text = report(scores, options.seeds, " --data DATA --photos PHOTOS" if options.data else "", more)
    print(text)
    write_sections(options.document, {f"doubly_stochastic_{data_set}": text})


def _scored(folder: Path, mine: list[str], options: argparse.Namespace) -> Scores:
    """Scores of a model on the test split, and how long it was trained."""
    tested: Scores = test(folder, folder / "test_coverage.json", [*mine, "--verbose", "false"])["scores"]
    scores = {**tested, "minutes": trained_seconds(folder) / 60}
    if options.photos is not None:
        captioner = checkpoint.load(folder / "best.ckpt")
        scores |= pointing(captioner, options.data, options.photos, options.document.parent)
    return scores


def pointing(captioner: Captioner, data: Path, photos: Path, boxes: Path) -> Scores:
    """The pointing game on photos with boxes drawn by eye, with people's captions.

    Args:
        captioner: the model.
        data: folder of Flickr8k; its photos have 224x224 pixels, those of the second file of `BOXES`.
        photos: folder of the photos of the first, in full resolution.
        boxes: folder of these files.
    """
    folders = photos, data / "images"
    boxed = [
        photo
        for file, folder in zip(BOXES, folders, strict=True)
        for photo in read_boxes(boxes / file, folder)
    ]
    people = read_captions(str(data / "Flickr8k.token.txt")).captions
    texts = [[text.strip() for text in people[photo.path.name]] for photo in boxed]
    captions = attend_references(captioner, [str(photo.path) for photo in boxed], texts)
    objects = [photo.boxes for photo, mine in zip(boxed, texts, strict=True) for _ in mine]
    grounding = ground(zip(captions, objects, strict=True))
    return {"pointing_accuracy": grounding.accuracy, "attention_in_box": grounding.mass}


def report(
    scores: Mapping[str, Sequence[Scores]], seeds: Sequence[int], data: str, more: Sequence[str]
) -> str:
    """A row for each λ: mean and standard deviation over the seeds."""
    every = [one for of_model in scores.values() for one in of_model]
    numbers = {name: form for name, form in COLUMNS.items() if all(name in one for one in every)}
    rows = [
        [
            WEIGHTS[name],
            *(
                mean_and_deviation([one[number] for one in of_model], digits)
                for number, (_, digits) in numbers.items()
            ),
        ]
        for name, of_model in scores.items()
    ]
    command = " ".join([f"python -m tools.reproduce coverage{data} --seeds", *map(str, seeds), *more])
    log_size = statistics.mean(one["attention_entropy_max"] for one in every)
    return (
        f"Written by `{command}`: test split, mean ± standard deviation over {len(seeds)} seeds. log L = "
        f"{log_size:.2f} nats.\n\n{table(['λ', *(title for title, _ in numbers.values())], rows)}"
    )
