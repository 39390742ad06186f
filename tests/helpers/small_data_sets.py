"""Small data sets in each of the five formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CAPTIONS = (["A dog runs.", "One brown dog, running."], ["A cat runs.", "One brown cat, running."])


@dataclass
class Entry:
    """An image as a caption file names it."""

    name: str
    split: str
    captions: list[str]
    id: int


@dataclass
class Data:
    """Captions and images; all images have different pixels."""

    folder: Path
    entries: list[Entry] = field(default_factory=list)
    malformed: int = 0
    """Malformed entries to be written."""

    @property
    def images(self) -> Path:
        return self.folder / "images"

    def add(self, split: str, captions: list[str] | None = None, suffix: str = ".png") -> Entry:
        """A new valid image with its captions."""
        number = 1000 + len(self.entries)
        entry = Entry(f"photo{number}{suffix}", split, captions or list(CAPTIONS[number % 2]), number)
        self.entries.append(entry)
        self.images.mkdir(exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (6, 7, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(self.images / entry.name)
        return entry

    def again(self, entry: Entry, split: str) -> None:
        """The same entry once more, in some split."""
        self.entries.append(Entry(entry.name, split, entry.captions, 1000 + len(self.entries)))


def clean(folder: Path) -> Data:
    """A data set without faults: six training images and three for each of validation and test."""
    data = Data(folder)
    for split, count in (("train", 6), ("val", 3), ("test", 3)):
        for _ in range(count):
            data.add(split)
    return data


# -- formats: each writes the captions and returns the arguments of `caption check` ----------------------------


def write(data: Data, format: str) -> list[str]:
    """Write the captions; the arguments of `caption check`."""
    WRITERS[format](data)
    return [str(data.folder), "--min-count", "2"]


def by_split(data: Data) -> dict[str, list[Entry]]:
    return {entry.split: [e for e in data.entries if e.split == entry.split] for entry in data.entries}


def _coco(data: Data) -> None:
    for split, entries in by_split(data).items():
        images = [{"id": entry.id, "file_name": entry.name} for entry in entries]
        written = [(entry.id, caption) for entry in entries for caption in entry.captions]
        annotations: list[dict[str, Any]] = [
            {"id": number, "image_id": image, "caption": caption}
            for number, (image, caption) in enumerate(written)
        ]
        if split == "train":
            annotations += [{"id": -1, "image_id": images[0]["id"], "text": "?"}] * data.malformed
        text = json.dumps({"images": images, "annotations": annotations})
        (data.folder / f"captions_{split}.json").write_text(text)


def _karpathy(data: Data) -> None:
    images: list[dict[str, Any]] = [
        {"filename": e.name, "cocoid": e.id, "split": e.split, "sentences": [{"raw": c} for c in e.captions]}
        for e in data.entries
    ]
    images += [{"filename": 7, "split": "train", "sentences": []}] * data.malformed
    (data.folder / "dataset_own.json").write_text(json.dumps({"images": images}))


def _flickr(data: Data) -> None:
    # The token file names an image once, even if it is in several lists.
    by_name = {entry.name: entry.captions for entry in reversed(data.entries)}
    names = dict.fromkeys(entry.name for entry in data.entries)
    lines = [f"{name}#{k}\t{caption}" for name in names for k, caption in enumerate(by_name[name])]
    (data.folder / "own.token.txt").write_text("\n".join(lines + ["no tab here"] * data.malformed))
    for split, entries in by_split(data).items():
        (data.folder / f"{split}Images.txt").write_text("\n".join(entry.name for entry in entries))


def _csv(data: Data) -> None:
    with (data.folder / "own.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption", "split"])
        for entry in data.entries:
            table.writerows([entry.name, caption, entry.split] for caption in entry.captions)
        table.writerows([["photo1000.png", "A dog", "and a cat", "train"]] * data.malformed)


def _json_lines(data: Data) -> None:
    entries = [{"image": e.name, "captions": e.captions, "split": e.split} for e in data.entries]
    lines = [*map(json.dumps, entries), *['{"image": "photo1000.png", "cap'] * data.malformed]
    (data.folder / "own.jsonl").write_text("\n".join(lines))


WRITERS: dict[str, Callable[[Data], None]] = {
    "COCO": _coco,
    "Karpathy": _karpathy,
    "Flickr": _flickr,
    "CSV": _csv,
    "JSON lines": _json_lines,
}
FORMATS = tuple(WRITERS)
