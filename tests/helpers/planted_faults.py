"""Small data sets in each of the five formats, with faults planted in them.

Run as a program, it prints the table of docs/results/attacks.md: faults planted and found, by format.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from caption.cli.main import run_verb

CAPTIONS = (["A dog runs.", "One brown dog, running."], ["A cat runs.", "One brown cat, running."])
LONG = "a " * 60 + "dog"


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


# -- faults: each is planted in a data set, and returns the name in its finding --------------------------------

Plant = Callable[[Data], "Entry | None"]


def missing(data: Data) -> Entry:
    entry = data.add("train")
    (data.images / entry.name).unlink()
    return entry


def truncated(data: Data) -> Entry:
    entry = data.add("val")
    file = data.images / entry.name
    file.write_bytes(file.read_bytes()[:-40])
    return entry


def captioned(split: str, *captions: str) -> Plant:
    """An image with these captions."""

    def plant(data: Data) -> Entry:
        entry = data.add(split)
        entry.captions = [*captions]
        return entry

    return plant


def listed_again(split: str, other: str) -> Plant:
    def plant(data: Data) -> Entry:
        entry = data.add(split)
        data.again(entry, other)
        return entry

    return plant


def copied(split: str, other: str, suffix: str = ".png") -> Plant:
    """The same pixels under another name, in another format if the suffix says so."""

    def plant(data: Data) -> Entry:
        entry, copy = data.add(split), data.add(other, suffix=suffix)
        with Image.open(data.images / entry.name) as image:
            image.save(data.images / copy.name)
        return entry

    return plant


def one_id(data: Data) -> Entry:
    entry, other = data.add("train"), data.add("train")
    other.id = entry.id
    return entry


def outside(data: Data) -> Entry:
    """A name that leads out of the folder of the images."""
    entry = data.add("train", ["A dog."])
    (data.images / entry.name).rename(data.folder / entry.name)
    entry.name = f"../{entry.name}"
    return entry


def malformed(data: Data) -> None:
    data.malformed += 1


@dataclass(frozen=True)
class Fault:
    """A fault that can be planted."""

    kind: str
    """The name of the fault in `caption check`."""
    what: str
    plant: Plant
    impossible: tuple[str, ...] = ()
    """The formats that cannot express it."""


TABLES = ("CSV", "JSON lines")
FAULTS = (
    Fault("missing image", "image file missing", missing),
    Fault("undecodable image", "image file truncated", truncated),
    Fault("empty caption", "caption of spaces", captioned("train", "A dog.", "  ")),
    Fault("empty caption", "caption of punctuation alone", captioned("test", "A dog.", "...")),
    Fault("image without captions", "image without captions", captioned("train"), ("CSV",)),
    Fault("image in two splits", "image in two splits", listed_again("train", "test")),
    Fault("image listed twice", "image listed twice in a split", listed_again("val", "val"), TABLES),
    Fault("id of two images", "two images with one id", one_id, ("Flickr", *TABLES)),
    Fault("malformed entry", "name of a file elsewhere", outside),
    Fault("malformed entry", "marks of another program", captioned("train", "<start> A dog. <end> <pad>")),
    Fault("malformed entry", "malformed entry", malformed),
    Fault("duplicate across splits", "copy of a file in another split", copied("train", "test")),
    Fault(
        "duplicate across splits", "same pixels, PNG and BMP, in two splits", copied("train", "val", ".bmp")
    ),
    Fault("duplicate within a split", "copy of a file in the same split (note)", copied("test", "test")),
    Fault("over-long caption", "caption of 61 words (note)", captioned("train", "A dog.", LONG)),
)


# -- findings --------------------------------------------------------------------------------------------------


def checked(arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `caption check`."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = run_verb("check", [*arguments, "--format", "json"])
    return code, json.loads(out.getvalue())


def names(finding: dict[str, Any], entry: Entry | None) -> bool:
    """Whether a finding names the faulty image."""
    if entry is None:
        return "line" in finding["text"] or "entry" in finding["text"]
    spelled = finding["text"] + "".join(finding["images"])
    return entry.name in spelled or f"image {entry.id}" in spelled


def found_by_format(folder: Path, copies: int = 2) -> Iterator[tuple[str, dict[str, tuple[int, int]], int]]:
    """For each format, with `copies` of every fault in one data set: (planted, found) by fault, and the number of false
    findings."""
    for format in FORMATS:
        data = clean(folder / format)
        faults = [fault for fault in FAULTS if format not in fault.impossible]
        planted = {fault: [fault.plant(data) for _ in range(copies)] for fault in faults}
        left = checked(write(data, format))[1]["findings"]
        counts = {}
        for fault, entries in planted.items():
            before = len(left)
            for entry in entries:
                hit = next((f for f in left if f["kind"] == fault.kind and names(f, entry)), None)
                left = [f for f in left if f is not hit]
            counts[fault.what] = (copies, before - len(left))
        yield format, counts, len(left)


def table(folder: Path) -> str:
    """Planted and found, as a Markdown table."""
    for format in FORMATS:
        (folder / format).mkdir()
    results = list(found_by_format(folder))
    rows = [["planted", *FORMATS], ["---"] * (1 + len(FORMATS))]
    for fault in FAULTS:
        cells = [counts.get(fault.what) for _, counts, _ in results]
        rows.append([fault.what, *("–" if cell is None else f"{cell[1]} of {cell[0]}" for cell in cells)])
    rows.append(["found though not planted", *(str(invented) for _, _, invented in results)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(table(Path(temporary)))
