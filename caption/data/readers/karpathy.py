"""Karpathy's splits: one `dataset_*.json` with the captions and the split of every image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caption.data.files import entries, field, read_json, user_path
from caption.data.readers.captions import SPLIT_NAMES, CaptionedImage, CheckedReader, Findings, Splits
from caption.errors import DataError


@dataclass
class Karpathy(CheckedReader):
    """The files `dataset_{coco,flickr8k,flickr30k}.json` of Karpathy and Fei-Fei (2015).

    An image's id is its COCO id, or its file name if it has none.

    Args:
        file: one of those files.
        images: the folder of the images; for COCO the one that holds `train2014` and `val2014`.
        restval: whether the images marked restval (the rest of COCO's validation set) join the training
            split, as is usual; otherwise they are left out.
    """

    file: str
    images: str
    restval: bool = True

    def collect(self, findings: Findings) -> Splits:
        folder = user_path(self.images)
        splits: Splits = {}
        for number, entry in enumerate(entries(read_json(self.file), "images", f"'{self.file}'")):
            where = f"entry {number} of 'images' in '{self.file}'"
            with findings.skipping():
                split = field(entry, "split", str, where)
                if split not in (*SPLIT_NAMES, "restval"):
                    raise DataError(
                        f"{where} has the unknown split '{split}': known are {', '.join(SPLIT_NAMES)}, restval."
                    )
                if split != "restval" or self.restval:
                    image = _captioned(entry, folder, where, findings)
                    splits.setdefault("train" if split == "restval" else split, []).append(image)
        return {split: splits[split] for split in SPLIT_NAMES if split in splits}


def _captioned(entry: dict[str, Any], folder: Path, where: str, findings: Findings) -> CaptionedImage:
    name = field(entry, "filename", str, where)
    subfolder = field(entry, "filepath", str, where) if "filepath" in entry else ""
    captions: list[str] = []
    for number, sentence in enumerate(entries(entry, "sentences", where), start=1):
        with findings.skipping():
            text = field(sentence, "raw", str, f"sentence {number} of {where}")
            captions += findings.stripped([text], f"sentence {number} of {where} ({name})")
    return CaptionedImage(
        id=field(entry, "cocoid", int, where) if "cocoid" in entry else name,
        path=folder / subfolder / name,
        captions=tuple(captions),
    )
