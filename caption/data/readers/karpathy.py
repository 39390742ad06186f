"""Karpathy's splits: one `dataset_*.json` with the captions and the split of every image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

from caption.data.findings import Findings
from caption.data.readers.base import EXAMINED, CaptionText, CheckedReader, Entry
from caption.data.text_files import field, object_list


@dataclass
class Karpathy(CheckedReader):
    """The files `dataset_{coco,flickr8k,flickr30k}.json` of Karpathy and Fei-Fei (2015).

    An image's id is its COCO id, or its file name if it has none.

    Args:
        captions: one of those files.
        images: the folder of the images; for COCO the one that holds `train2014` and `val2014`.
        restval: whether the images marked restval (the rest of COCO's validation set) join the training
            split, as is usual; otherwise they are left out.
    """

    format: ClassVar[str] = "Karpathy"
    captions: str
    images: str
    restval: bool = True

    @classmethod
    def matches(cls, file: CaptionText) -> bool:
        images = file.object.get("images")
        examples = images[:EXAMINED] if isinstance(images, list) else []
        return any("sentences" in image for image in examples if isinstance(image, dict))

    @classmethod
    def entries(cls, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """One entry for each image. A malformed sentence is left out alone."""
        for number, image in enumerate(object_list(file.json, "images", file.name)):
            where = f"entry {number} of 'images' in {file.name}"
            with findings:
                name = field(image, "filename", str, where)
                folder = field(image, "filepath", str, where) if "filepath" in image else ""
                image_id = field(image, "cocoid", int, where) if "cocoid" in image else name
                split = field(image, "split", str, where) if "split" in image else None
                captions = []
                for place, sentence in enumerate(object_list(image, "sentences", where), start=1):
                    with findings:
                        captions.append(field(sentence, "raw", str, f"sentence {place} of {where}"))
                yield Entry(where, image_id, str(PurePosixPath(folder, name)), captions, split)

    def training_entries(self, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """The entries; those of `restval` become training images or are left out."""
        for entry in self.entries(file, findings):
            if entry.split != "restval":
                yield entry
            elif self.restval:
                yield entry._replace(split="train")

    def key(self, entry: Entry) -> str:
        return entry.where
