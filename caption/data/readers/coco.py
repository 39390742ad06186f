"""MS COCO: one captions JSON and one image folder per split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from caption.data.files import entries, field, read_json, user_path
from caption.data.readers.captions import (
    CaptionedImage,
    CheckedReader,
    Findings,
    Kind,
    Splits,
    check_split_names,
)
from caption.errors import DataError


@dataclass
class Coco(CheckedReader):
    """Captions in the format of MS COCO (`captions_train2014.json`). An image's id is its COCO id.

    Args:
        captions: the captions JSON of each split: keys among train, val, test.
        images: the image folder of each of these splits.
    """

    captions: dict[str, str]
    images: dict[str, str]

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
                splits[split] = _read_split(file, user_path(self.images[split]), findings)
        return splits


def _read_split(file: str, folder: Path, findings: Findings) -> list[CaptionedImage]:
    data = read_json(file)
    paths: dict[int, Path] = {}
    known = set()  # with the ids of faulty entries: a caption of such an image is not a second fault
    for number, image in enumerate(entries(data, "images", f"'{file}'")):
        where = f"entry {number} of 'images' in '{file}'"
        with findings.skipping():
            image_id = field(image, "id", int, where)
            known.add(image_id)
            name = field(image, "file_name", str, where)
            if not name.strip():
                raise DataError(f"{where} names no file. Write its 'file_name'.")
            if image_id in paths:
                text = f"image {image_id} is both '{paths[image_id]}' and, by {where}, '{folder / name}'"
                findings.add(Kind.SAME_ID, text, paths[image_id], folder / name)
            else:
                paths[image_id] = folder / name
    captions: dict[int, list[str]] = {image_id: [] for image_id in known}
    for number, annotation in enumerate(entries(data, "annotations", f"'{file}'")):
        where = f"entry {number} of 'annotations' in '{file}'"
        if "caption" not in annotation and "bbox" in annotation:
            raise DataError(f"'{file}' holds boxes, not captions. Give the captions JSON, captions_*.json.")
        with findings.skipping():
            field(annotation, "id", int, where)
            image_id = field(annotation, "image_id", int, where)
            if image_id not in known:
                raise DataError(f"{where} belongs to image {image_id}, which is not in 'images'.")
            text = field(annotation, "caption", str, where)
            captions[image_id] += findings.stripped([text], f"{where} (image {image_id})")
    return [CaptionedImage(image_id, path, tuple(captions[image_id])) for image_id, path in paths.items()]
