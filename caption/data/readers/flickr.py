"""Flickr8k and Flickr30k as published: a token file, and one list of file names per split."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, ClassVar

from caption.core.errors import DataError
from caption.data.findings import Findings
from caption.data.readers.base import CaptionText, CheckedReader, DetectedFile, Entry, Layout, gather
from caption.data.readers.coco import split_in_name
from caption.data.splits import SPLIT_NAMES, Splits, check_split_names
from caption.data.text_files import numbered_lines, read_text, user_path

TOKEN = re.compile(r"[^\t]+#\d+\t")


@dataclass
class Flickr(CheckedReader):
    """Captions in the format of `Flickr8k.token.txt`: lines `NAME.jpg#0<TAB>caption`.

    Images and captions that are in no split are left out. An image's id is its file name.

    Args:
        captions: the token file.
        splits: for each split (keys among train, val, test) the file that lists its images, one name a line; None if
            `fractions` divide the images.
        images: the folder of the images.
        fractions: the share of each split: `{train: 0.8, val: 0.1, test: 0.1}`, see `caption.data.splits`.
    """

    format: ClassVar[str] = "Flickr"
    captions: str
    splits: dict[str, str] | None
    images: str
    fractions: dict[str, float] | None = None

    @classmethod
    def matches(cls, file: CaptionText) -> bool:
        return any(map(TOKEN.match, file.head))

    @classmethod
    def entries(cls, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """One entry for each line of a token file."""
        for number, line in numbered_lines(file.text):
            key, tab, caption = line.partition("\t")
            image, mark, index = key.strip().rpartition("#")
            where = f"line {number} of {file.name}"
            with findings:
                if not (tab and mark and image and index.strip().isdigit()):
                    raise DataError(
                        f"{where} is {line[:60]!r}, not 'NAME.jpg#0<TAB>a caption'. Correct or delete it."
                    )
                yield Entry(where, image, image, (caption,))

    @classmethod
    def arguments(cls, files: Sequence[DetectedFile], layout: Layout) -> dict[str, Any]:
        lists = None if layout.fractions else dict(layout.splits) or _lists_beside(files[0].path)
        return super().arguments(files, layout) | {"splits": lists}

    def collect(self, findings: Findings) -> Splits:
        """The images in the list of each split, in its order, or all images divided by `fractions`."""
        if (self.splits is None) == (not self.fractions):
            raise DataError(f"give splits, lists of images, or fractions for {self.source}: one of the two.")
        if self.splits is None:
            return super().collect(findings)
        check_split_names(self.splits)
        folder = user_path(self.images)
        entries = list(self.entries(CaptionText(read_text(self.captions), self.source), findings))
        listed: dict[str, list[str]] = {}
        for split, file in self.splits.items():
            with findings:
                listed[split] = read_names(file)
                entries += [Entry(f"'{file}'", name, name, ()) for name in listed[split]]
        images = {self.key(entry): image for entry, image in gather(entries, folder, findings, self.key)}
        keys = {split: [str(PurePath(name)) for name in names] for split, names in listed.items()}
        return {split: [images[key] for key in names if key in images] for split, names in keys.items()}


def _lists_beside(tokens: Path) -> dict[str, str]:
    """The lists of images beside the token file that are named after their splits."""
    text = CaptionText(read_text(tokens), f"'{tokens}'")
    names = {entry.file for entry in Flickr.entries(text, Findings())}
    lists: dict[str, list[str]] = {}
    for file in sorted(tokens.parent.glob("*.txt")):
        split = split_in_name(file)
        if split is not None:
            with suppress(DataError):
                if names.intersection(read_names(file)):
                    lists.setdefault(split, []).append(str(file))
    if not lists or any(len(files) > 1 for files in lists.values()):
        raise DataError(
            f"beside '{tokens}' there must be one list of images for each split: name them with --splits, as in "
            "train=trainImages.txt test=testImages.txt."
        )
    return {split: lists[split][0] for split in SPLIT_NAMES if split in lists}


def read_names(file: str | Path) -> list[str]:
    """The image names of a split list, one a line. Raises a DataError if the file cannot be read."""
    return [line.strip() for _, line in numbered_lines(read_text(file))]
