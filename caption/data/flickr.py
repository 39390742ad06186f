"""Flickr8k and Flickr30k as published: a token file, and one list of file names per split."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from caption.data.captions import (
    CaptionedImage,
    CaptionReader,
    Splits,
    check_split_names,
    checked,
    located,
    read_text,
)
from caption.errors import DataError


class Flickr(CaptionReader):
    """Captions in the format of `Flickr8k.token.txt`: lines `NAME.jpg#0<TAB>caption`.

    Images and captions that are in no split are left out.

    Args:
        captions: the token file.
        splits: for each split (keys among train, val, test) the file that lists its images, one name a line.
        images: the folder of the images.
    """

    def __init__(self, captions: str, splits: dict[str, str], images: str) -> None:
        self.captions = captions
        self.splits = splits
        self.images = images

    def read(self) -> Splits:
        """Read and check all splits; an image's id is its file name.

        Raises:
            DataError: see `CaptionReader.read`.
        """
        check_split_names(self.splits)
        folder = located(self.images)
        captions = _read_tokens(located(self.captions))
        splits = {
            split: [
                CaptionedImage(id=name, path=folder / name, captions=tuple(captions.get(name, ())))
                for name in _read_names(located(file))
            ]
            for split, file in self.splits.items()
        }
        return checked(splits, f"'{self.captions}'")


def _read_tokens(file: Path) -> dict[str, list[str]]:
    """Captions by file name, in the order of the file."""
    captions: dict[str, list[str]] = {}
    for number, line in _lines(file):
        key, tab, caption = line.partition("\t")
        name, mark, index = key.strip().rpartition("#")
        if not (tab and mark and name and index.isdigit() and caption.strip()):
            raise DataError(
                f"line {number} of '{file}' is {line[:60]!r}, but should be like 'NAME.jpg#0<TAB>a caption'. "
                f"Correct or delete it."
            )
        captions.setdefault(name, []).append(caption.strip())
    return captions


def _read_names(file: Path) -> list[str]:
    return [line.strip() for _, line in _lines(file)]


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1."""
    # Not splitlines(): it also cuts at characters such as U+2028, which may stand inside a caption.
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")
