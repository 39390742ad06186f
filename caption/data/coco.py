"""MS COCO: one captions JSON and one image folder per split."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from pycocotools.coco import COCO

from caption.data.captions import (
    CaptionedImage,
    CaptionReader,
    Splits,
    check_split_names,
    checked,
    entries,
    field,
    located,
    read_json,
)
from caption.errors import DataError


class Coco(CaptionReader):
    """Captions in the format of MS COCO (`captions_train2014.json`), read through pycocotools.

    Args:
        captions: the captions JSON of each split: keys among train, val, test.
        images: the image folder of each of these splits.
    """

    def __init__(self, captions: dict[str, str], images: dict[str, str]) -> None:
        self.captions = captions
        self.images = images

    def read(self) -> Splits:
        """Read and check all splits; an image's id is its COCO id.

        Raises:
            DataError: see `CaptionReader.read`.
        """
        check_split_names(self.captions)
        if set(self.captions) != set(self.images):
            raise DataError(
                f"captions are given for the splits {sorted(self.captions)}, but image folders for "
                f"{sorted(self.images)}: give both for each split."
            )
        splits = {
            split: _read_split(located(file), located(self.images[split]))
            for split, file in self.captions.items()
        }
        return checked(splits, ", ".join(f"'{file}'" for file in self.captions.values()))


def _read_split(file: Path, folder: Path) -> list[CaptionedImage]:
    coco = _indexed(file)
    return [
        CaptionedImage(
            id=image_id,
            path=folder / image["file_name"],
            captions=tuple(annotation["caption"].strip() for annotation in coco.imgToAnns.get(image_id, ())),
        )
        for image_id, image in coco.imgs.items()
    ]


def _indexed(file: Path) -> COCO:
    """pycocotools' index of `file`, checked first: pycocotools itself would stop with a KeyError."""
    data = read_json(file)
    _check(data, file)
    coco = COCO()
    coco.dataset = data
    with contextlib.redirect_stdout(io.StringIO()):  # it reports its progress on stdout, which is for results
        coco.createIndex()
    return coco


def _check(data: dict[str, Any], file: Path) -> None:
    known: set[int] = set()
    for number, image in enumerate(entries(data, "images", f"'{file}'")):
        where = f"entry {number} of 'images' in '{file}'"
        image_id = field(image, "id", int, where)
        if not field(image, "file_name", str, where).strip():
            raise DataError(f"{where} names no file. Write its 'file_name'.")
        if image_id in known:
            raise DataError(f"'{file}' has two images with the id {image_id}: keep one entry.")
        known.add(image_id)
    for number, annotation in enumerate(entries(data, "annotations", f"'{file}'")):
        where = f"entry {number} of 'annotations' in '{file}'"
        if "caption" not in annotation and "bbox" in annotation:
            raise DataError(f"'{file}' holds boxes, not captions. Give the captions JSON, captions_*.json.")
        field(annotation, "id", int, where)
        field(annotation, "caption", str, where)
        if field(annotation, "image_id", int, where) not in known:
            raise DataError(f"{where} belongs to image {annotation['image_id']}, which is not in 'images'.")
