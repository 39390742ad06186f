"""MS COCO: one captions JSON and one image folder per split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caption.data.files import field, object_list, read_json, user_path
from caption.data.readers.captions import (
    CaptionedImage,
    CheckedReader,
    Entry,
    Findings,
    Kind,
    Splits,
    check_split_names,
)
from caption.data.readers.fractions import divided
from caption.errors import DataError


def coco_entries(data: dict[str, Any], name: str, findings: Findings) -> Iterator[Entry]:
    """One entry without captions for each image, then one for each caption. The images, and their file names, may be
    missing from `data`."""
    files: dict[int | str, str] = {}
    for number, image in enumerate(object_list(data, "images", name) if data.get("images") else ()):
        where = f"entry {number} of 'images' in {name}"
        with findings.skipping():
            image_id = field(image, "id", (int, str), where)
            files.setdefault(image_id, "")  # a caption of a faulty entry is not a second fault
            file = field(image, "file_name", str, where) if "file_name" in image else ""
            files[image_id] = files[image_id] or file.strip()
            yield Entry(where, image_id, file.strip(), ())
    for number, annotation in enumerate(object_list(data, "annotations", name)):
        where = f"entry {number} of 'annotations' in {name}"
        if "caption" not in annotation and "bbox" in annotation:
            raise DataError(f"{name} holds boxes, not captions. Give the captions JSON, captions_*.json.")
        with findings.skipping():
            image_id = field(annotation, "image_id", (int, str), where)
            if files and image_id not in files:
                raise DataError(f"{where} belongs to image {image_id}, which is not in 'images'.")
            text = field(annotation, "caption", str, where)
            yield Entry(where, image_id, files.get(image_id, ""), (text,))


@dataclass
class Coco(CheckedReader):
    """Captions in the format of MS COCO (`captions_train2014.json`). An image's id is its COCO id.

    Args:
        captions: the captions JSON of each split: keys among train, val, test; or a single file for all splits.
        images: the image folder of each of these splits, or that of the single file.
        fractions: for a single file, the share of each split: `{train: 0.8, val: 0.1, test: 0.1}`, see
            `caption.data.readers.fractions`; None = all its images are training images.
    """

    captions: dict[str, str] | str
    images: dict[str, str] | str
    fractions: dict[str, float] | None = None

    @property
    def source(self) -> str:
        files = [self.captions] if isinstance(self.captions, str) else self.captions.values()
        return ", ".join(f"'{file}'" for file in files)

    def collect(self, findings: Findings) -> Splits:
        if isinstance(self.captions, str) and isinstance(self.images, str):
            images = _read_split(self.captions, user_path(self.images), findings)
            return divided(images, self.fractions)
        if isinstance(self.captions, str) or isinstance(self.images, str) or self.fractions is not None:
            raise DataError(
                "fractions divide one file of captions: give one file and one folder, without the names of splits."
            )
        check_split_names(self.captions)
        if set(self.captions) != set(self.images):
            raise DataError(
                f"captions are given for the splits {sorted(self.captions)}, but image folders for "
                f"{sorted(self.images)}: give both for each split."
            )
        splits: Splits = {}
        for split, file in self.captions.items():
            with findings.skipping():
                images = _read_split(file, user_path(self.images[split]), findings)
                splits[split] = [image for _, image in images]
        return splits


def _read_split(file: str, folder: Path, findings: Findings) -> list[tuple[str, CaptionedImage]]:
    """The images of a file, each with its name as the file spells it."""
    data = read_json(file)
    object_list(data, "images", f"'{file}'")
    paths: dict[int | str, Path] = {}
    names: dict[int | str, str] = {}
    captions: dict[int | str, list[str]] = {}
    for entry in coco_entries(data, f"'{file}'", findings):
        if entry.captions:
            captions.setdefault(entry.image, []).extend(findings.stripped(entry))
            continue
        path = folder / entry.file
        if not entry.file:
            findings.add(Kind.MALFORMED, f"{entry.where} names no file. Write its 'file_name'.")
        elif entry.image in paths:
            text = f"image {entry.image} is both '{paths[entry.image]}' and, by {entry.where}, '{path}'"
            findings.add(Kind.SAME_ID, text, paths[entry.image], path)
        else:
            paths[entry.image], names[entry.image] = path, entry.file
    return [
        (names[image], CaptionedImage(image, path, tuple(captions.get(image, ()))))
        for image, path in paths.items()
    ]
