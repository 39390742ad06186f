"""Flickr8k and Flickr30k as published: a token file, and one list of file names per split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from caption.data.files import numbered_lines, read_text, user_path
from caption.data.readers.captions import (
    CaptionedImage,
    CheckedReader,
    Entry,
    Findings,
    Splits,
    check_split_names,
)
from caption.data.readers.fractions import check_fractions, divided
from caption.errors import DataError


def flickr_entries(text: str, name: str, findings: Findings) -> Iterator[Entry]:
    """One entry for each line `NAME.jpg#0<TAB>caption` of a token file."""
    for number, line in numbered_lines(text):
        key, tab, caption = line.partition("\t")
        image, mark, index = key.strip().rpartition("#")
        where = f"line {number} of {name}"
        with findings.skipping():
            if not (tab and mark and image and index.strip().isdigit()):
                raise DataError(
                    f"{where} is {line[:60]!r}, not 'NAME.jpg#0<TAB>a caption'. Correct or delete it."
                )
            yield Entry(where, image, image, (caption,))


@dataclass
class Flickr(CheckedReader):
    """Captions in the format of `Flickr8k.token.txt`: lines `NAME.jpg#0<TAB>caption`.

    Images and captions that are in no split are left out. An image's id is its file name.

    Args:
        captions: the token file.
        splits: for each split (keys among train, val, test) the file that lists its images, one name a line; None if
            `fractions` divide the images.
        images: the folder of the images.
        fractions: the share of each split: `{train: 0.8, val: 0.1, test: 0.1}`, see `caption.data.readers.fractions`.
    """

    captions: str
    splits: dict[str, str] | None
    images: str
    fractions: dict[str, float] | None = None

    @property
    def source(self) -> str:
        return f"'{self.captions}'"

    def collect(self, findings: Findings) -> Splits:
        if (self.splits is None) == (self.fractions is None):
            raise DataError(f"give splits, lists of images, or fractions for {self.source}: one of the two.")
        if self.splits is None:
            check_fractions(self.fractions or {})
        check_split_names(self.splits or ())
        folder = user_path(self.images)
        captions: dict[str, list[str]] = {}
        for entry in flickr_entries(read_text(self.captions), self.source, findings):
            captions.setdefault(entry.file, []).extend(findings.stripped(entry))
        if self.splits is None:
            named = (
                (name, CaptionedImage(name, folder / name, tuple(own))) for name, own in captions.items()
            )
            return divided(named, self.fractions)
        splits: Splits = {}
        for split, file in self.splits.items():
            with findings.skipping():
                splits[split] = [
                    CaptionedImage(id=name, path=folder / name, captions=tuple(captions.get(name, ())))
                    for name in read_names(file)
                ]
        return splits


def read_names(file: str | Path) -> list[str]:
    """The image names of a split list, one a line. Raises a DataError if the file cannot be read."""
    return [line.strip() for _, line in numbered_lines(read_text(file))]
