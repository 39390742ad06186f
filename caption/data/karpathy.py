"""Karpathy's splits: one `dataset_*.json` with the captions and the split of every image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from caption.data.captions import (
    SPLIT_NAMES,
    CaptionedImage,
    CaptionReader,
    Splits,
    checked,
    entries,
    field,
    located,
    read_json,
)
from caption.errors import DataError


class Karpathy(CaptionReader):
    """The files `dataset_{coco,flickr8k,flickr30k}.json` of Karpathy and Fei-Fei (2015).

    Args:
        file: one of those files.
        images: the folder of the images; for COCO the one that holds `train2014` and `val2014`.
        restval: whether the images marked restval (the rest of COCO's validation set) join the training
            split, as is usual; otherwise they are left out.
    """

    def __init__(self, file: str, images: str, restval: bool = True) -> None:
        self.file = file
        self.images = images
        self.restval = restval

    def read(self) -> Splits:
        """Read and check all splits; an image's id is its COCO id, or its file name where it has none.

        Raises:
            DataError: see `CaptionReader.read`.
        """
        file, folder = located(self.file), located(self.images)
        splits: Splits = {}
        for number, entry in enumerate(entries(read_json(file), "images", f"'{file}'")):
            where = f"entry {number} of 'images' in '{file}'"
            split = _split(entry, where)
            if split == "restval":
                if not self.restval:
                    continue
                split = "train"
            splits.setdefault(split, []).append(_captioned(entry, folder, where))
        ordered = {split: splits[split] for split in SPLIT_NAMES if split in splits}
        return checked(ordered, f"'{self.file}'")


def _split(entry: dict[str, Any], where: str) -> str:
    split: str = field(entry, "split", str, where)
    if split not in (*SPLIT_NAMES, "restval"):
        raise DataError(
            f"{where} has the unknown split '{split}': known are {', '.join(SPLIT_NAMES)}, restval."
        )
    return split


def _captioned(entry: dict[str, Any], folder: Path, where: str) -> CaptionedImage:
    name = field(entry, "filename", str, where)
    subfolder = field(entry, "filepath", str, where) if "filepath" in entry else ""
    sentences = entries(entry, "sentences", where)
    return CaptionedImage(
        id=field(entry, "cocoid", int, where) if "cocoid" in entry else name,
        path=folder / subfolder / name,
        captions=tuple(field(sentence, "raw", str, where).strip() for sentence in sentences),
    )
