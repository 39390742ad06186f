"""Karpathy's splits: one `dataset_*.json` with the captions and the split of every image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from caption.data.files import field, object_list, read_json, user_path
from caption.data.readers.captions import SPLIT_NAMES, CaptionedImage, CheckedReader, Entry, Findings, Splits
from caption.errors import DataError


def karpathy_entries(data: dict[str, Any], name: str, findings: Findings) -> Iterator[Entry]:
    """One entry for each image. A malformed sentence is left out alone."""
    for number, image in enumerate(object_list(data, "images", name)):
        where = f"entry {number} of 'images' in {name}"
        with findings.skipping():
            file = field(image, "filename", str, where)
            folder = field(image, "filepath", str, where) if "filepath" in image else ""
            image_id = field(image, "cocoid", int, where) if "cocoid" in image else file
            split = field(image, "split", str, where) if "split" in image else None
            captions = []
            for place, sentence in enumerate(object_list(image, "sentences", where), start=1):
                with findings.skipping():
                    captions.append(field(sentence, "raw", str, f"sentence {place} of {where}"))
            yield Entry(where, image_id, str(PurePosixPath(folder, file)), captions, split)


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
        for entry in karpathy_entries(read_json(self.file), self.source, findings):
            with findings.skipping():
                if entry.split not in (*SPLIT_NAMES, "restval"):
                    raise DataError(
                        f"{entry.where} has the split '{entry.split}': known are {', '.join(SPLIT_NAMES)}, restval."
                    )
                if entry.split != "restval" or self.restval:
                    image = CaptionedImage(entry.image, folder / entry.file, tuple(findings.stripped(entry)))
                    splits.setdefault("train" if entry.split == "restval" else entry.split, []).append(image)
        return {split: splits[split] for split in SPLIT_NAMES if split in splits}
