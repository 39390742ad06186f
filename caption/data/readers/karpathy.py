"""Karpathy's splits: one `dataset_*.json` with the captions and the split of every image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, ClassVar

from caption.data.files import field, object_list, read_text, user_path
from caption.data.findings import Findings
from caption.data.readers.base import (
    ALL,
    EXAMINED,
    CaptionText,
    CheckedReader,
    DetectedFile,
    Entry,
    Layout,
    image_path,
    stripped,
)
from caption.data.splits import SPLIT_NAMES, CaptionedImage, Splits
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

    format: ClassVar[str] = "Karpathy"
    file: str
    images: str
    restval: bool = True

    @classmethod
    def matches(cls, file: CaptionText) -> bool:
        images = file.object.get("images")
        some = images[:EXAMINED] if isinstance(images, list) else []
        return any("sentences" in image for image in some if isinstance(image, dict))

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

    @classmethod
    def arguments(cls, files: Sequence[DetectedFile], layout: Layout) -> dict[str, Any]:
        (file,) = files
        if layout.splits:
            raise DataError(f"'{file.path}' has splits of its own: leave out --splits.")
        return {"file": str(file.path), "images": layout.images.get(ALL) or file.image_folder()}

    def collect(self, findings: Findings) -> Splits:
        """The images by the split of their entry; `restval` as training images, or not at all."""
        folder = user_path(self.images)
        splits: Splits = {}
        for entry in self.entries(CaptionText(read_text(self.file), self.source), findings):
            with findings:
                if entry.split not in (*SPLIT_NAMES, "restval"):
                    raise DataError(
                        f"{entry.where} has the split '{entry.split}': known are {', '.join(SPLIT_NAMES)}, restval."
                    )
                if entry.split != "restval" or self.restval:
                    path = image_path(folder, entry.file, entry.where)
                    image = CaptionedImage(entry.image, path, tuple(stripped(entry, findings, path)))
                    splits.setdefault("train" if entry.split == "restval" else entry.split, []).append(image)
        return {split: splits[split] for split in SPLIT_NAMES if split in splits}
