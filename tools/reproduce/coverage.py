"""The doubly stochastic term measured: the tables of docs/results/doubly-stochastic.md."""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Mapping
from pathlib import Path

from caption import checkpoint
from caption.analysis.photos.pointing import OWN
from caption.analysis.photos.study import PhotoSet, study_photos
from tools.documents import mean_and_deviation, table, write_sections
from tools.photo_pointing import image_set, numbers_of
from tools.reproduce import flickr8k
from tools.reproduce.models import NUMBERS, Model, Run
from tools.reproduce.runs import test
from tools.reproduce.tasks import FLICKR8K, Task, command, complete, task_of

COLUMNS = NUMBERS | {
    "attention_evenness": ("evenness", 3),
    "attention_unseen": ("regions hardly seen", 3),
}
"""Titles and decimals of scores, as in `NUMBERS`."""
BOXES = ("photo_boxes.json", "photo_boxes_unseen.json")
"""Beside the document: boxes of photos of Flickr8k's development split, see `tools.photo_pointing`."""


def models(task: Task) -> dict[str, Model]:
    """A row for each λ; that of 0 is the soft model of the other tables, and is not trained again."""
    return {
        "soft": task.soft("0"),
        "doubly_stochastic_tenth": task.soft("0.1", "training/doubly_stochastic_tenth"),
        "doubly_stochastic": task.soft("1", "training/doubly_stochastic"),
    }


def main(options: argparse.Namespace, more: list[str]) -> None:
    """Train and score what is not published yet, and write all that is into the document."""
    task = task_of(options)
    if (options.photos is None) != (options.data is None):
        sys.exit(
            "Flickr8k needs both --data, its folder, and --photos, the photos with boxes: give both or none"
        )
    images = None
    if task is FLICKR8K:
        files, folders = (
            [options.document.parent / file for file in BOXES],
            [options.photos, options.data / "images"],
        )
        images = image_set(files, folders, str(options.data / "Flickr8k.token.txt"))
    published = options.document.with_name(f"doubly_stochastic_on_{task.name}.json")
    runs = complete(models(task), published, options, more, functools.partial(_scored, options.data, images))
    text = report(task, runs)
    print(text)
    write_sections(options.document, {f"doubly_stochastic_{task.name}": text})


def _scored(data: Path | None, images: PhotoSet | None, name: str, folder: Path, mine: list[str]) -> Run:
    """Scores on the test split; photos get the beam that is best on dev, and the pointing game on photos with boxes."""
    scored: Run = {}
    if data is not None and images is not None:
        scored["beam"], scored["dev"] = flickr8k.best_beam(data, folder, mine)
        mine = [*mine, f"--model.search.init_args.beam_size={scored['beam']}"]
        scored["photos"] = numbers_of(study_photos(name, checkpoint.load(folder / "best.ckpt"), images))
    file = folder / "test_coverage.json"
    return scored | {"test": test(folder, file, [*mine, "--verbose", "false"])["scores"]}


def report(task: Task, runs: Mapping[tuple[str, int], Run]) -> str:
    """A row for each λ: mean and standard deviation over the seeds."""
    every = {key: _numbers(run) for key, run in runs.items()}
    numbers = {key: form for key, form in COLUMNS.items() if any(key in one for one in every.values())}
    rows = []
    for name, model in models(task).items():
        of_model = [every[key] for key in sorted(every) if key[0] == name]
        if not of_model:
            continue
        cells = [
            mean_and_deviation([one[number] for one in of_model if number in one], digits)
            for number, (_, digits) in numbers.items()
        ]
        rows.append([model.title, str(len(of_model)), *cells])
    log_size = max((run["test"]["attention_entropy_max"] for run in runs.values()), default=math.nan)
    written_by = command("coverage", task, dict(runs), "--data DATA --photos PHOTOS")
    return (
        f"Written by `{written_by}`: test split, mean ± standard deviation over the seeds. log L = {log_size:.2f} nats."
        f"\n\n{table(['λ', 'seeds', *(title for title, _ in numbers.values())], rows)}"
    )


def _numbers(run: Run) -> dict[str, float]:
    """The numbers of a row, pointing on photos among them."""
    numbers: dict[str, float] = dict(run["test"])
    if "photos" in run:
        numbers |= {"pointing_accuracy": run["photos"][OWN], "attention_in_box": run["photos"]["mass"]}
    return numbers
