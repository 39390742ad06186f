"""MS COCO: one captions JSON and one image folder per split."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from pycocotools.coco import COCO

from caption.data.readers.captions import CaptionedImage, Splits, entries, field, located, read_json
from caption.data.readers.captions_checks import CheckedReader, check_split_names
from caption.data.readers.findings import EMPTY, SAME_ID, Finding, Findings
from caption.errors import DataError


class Coco(CheckedReader):
    """Captions in the format of MS COCO (`captions_train2014.json`), read through pycocotools.

    An image's id is its COCO id.

    Args:
        captions: the captions JSON of each split: keys among train, val, test.
        images: the image folder of each of these splits.
    """

    def __init__(self, captions: dict[str, str], images: dict[str, str]) -> None:
        self.captions = captions
        self.images = images

    @property
    def source(self) -> str:
        return ", ".join(f"'{file}'" for file in self.captions.values())

    def collect(self, findings: Findings) -> Splits:
        check_split_names(self.captions)
        if set(self.captions) != set(self.images):
            raise DataError(
                f"captions are given for the splits {sorted(self.captions)}, but image folders for "
                f"{sorted(self.images)}: give both for each split."
            )
        splits: Splits = {}
        for split, file in self.captions.items():
            with findings.skipping():
                splits[split] = _read_split(located(file), located(self.images[split]), findings)
        return splits


def _read_split(file: Path, folder: Path, findings: Findings) -> list[CaptionedImage]:
    coco = _indexed(file, folder, findings)
    return [
        CaptionedImage(
            id=image_id,
            path=folder / image["file_name"],
            captions=tuple(annotation["caption"].strip() for annotation in coco.imgToAnns.get(image_id, ())),
        )
        for image_id, image in coco.imgs.items()
    ]


def _indexed(file: Path, folder: Path, findings: Findings) -> COCO:
    """pycocotools' index of `file`, checked first: pycocotools itself would stop with a KeyError."""
    data = read_json(file)
    images, known = _images(data, file, folder, findings)
    annotations = _annotations(data, file, known, findings)
    coco = COCO()
    coco.dataset = {**data, "images": images, "annotations": annotations}
    with contextlib.redirect_stdout(io.StringIO()):  # it reports its progress on stdout, which is for results
        coco.createIndex()
    return coco


def _images(
    data: dict[str, Any], file: Path, folder: Path, findings: Findings
) -> tuple[list[dict[str, Any]], set[int]]:
    """The sound entries, and the ids of all: captions of an image whose entry is wrong are not wrong for that."""
    sound: dict[int, dict[str, Any]] = {}
    known = set()
    for number, image in enumerate(entries(data, "images", f"'{file}'")):
        where = f"entry {number} of 'images' in '{file}'"
        with findings.skipping():
            image_id = field(image, "id", int, where)
            known.add(image_id)
            name = field(image, "file_name", str, where)
            if not name.strip():
                raise DataError(f"{where} names no file. Write its 'file_name'.")
            if image_id in sound:
                both = [folder / sound[image_id]["file_name"], folder / name]
                text = f"image {image_id} is both '{both[0]}' and, by {where}, '{both[1]}'"
                findings.report([Finding(SAME_ID, text, tuple(map(str, both)))])
            else:
                sound[image_id] = image
    return list(sound.values()), known


def _annotations(
    data: dict[str, Any], file: Path, known: set[int], findings: Findings
) -> list[dict[str, Any]]:
    sound = []
    for number, annotation in enumerate(entries(data, "annotations", f"'{file}'")):
        where = f"entry {number} of 'annotations' in '{file}'"
        if "caption" not in annotation and "bbox" in annotation:
            raise DataError(f"'{file}' holds boxes, not captions. Give the captions JSON, captions_*.json.")
        with findings.skipping():
            field(annotation, "id", int, where)
            image_id = field(annotation, "image_id", int, where)
            if image_id not in known:
                raise DataError(f"{where} belongs to image {image_id}, which is not in 'images'.")
            if field(annotation, "caption", str, where).strip():
                sound.append(annotation)
            else:
                findings.report([Finding(EMPTY, f"{where} (image {image_id})")])
    return sound
