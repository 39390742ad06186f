"""Flickr8k and Flickr30k as published: a token file, and one list of file names per split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from caption.data.files import text_lines, user_path
from caption.data.readers.captions import (
    CaptionedImage,
    CheckedReader,
    Findings,
    Splits,
    check_split_names,
)
from caption.errors import DataError


@dataclass
class Flickr(CheckedReader):
    """Captions in the format of `Flickr8k.token.txt`: lines `NAME.jpg#0<TAB>caption`.

    Images and captions that are in no split are left out. An image's id is its file name.

    Args:
        captions: the token file.
        splits: for each split (keys among train, val, test) the file that lists its images, one name a line.
        images: the folder of the images.
    """

    captions: str
    splits: dict[str, str]
    images: str

    @property
    def source(self) -> str:
        return f"'{self.captions}'"

    def collect(self, findings: Findings) -> Splits:
        check_split_names(self.splits)
        folder = user_path(self.images)
        captions = self._read_tokens(findings)
        splits: Splits = {}
        for split, file in self.splits.items():
            with findings.skipping():
                splits[split] = [
                    CaptionedImage(id=name, path=folder / name, captions=tuple(captions.get(name, ())))
                    for name in read_names(file)
                ]
        return splits

    def _read_tokens(self, findings: Findings) -> dict[str, list[str]]:
        """Captions by file name, in the order of the file."""
        captions: dict[str, list[str]] = {}
        for number, line in text_lines(self.captions):
            key, tab, caption = line.partition("\t")
            name, mark, index = key.strip().rpartition("#")
            where = f"line {number} of '{self.captions}'"
            with findings.skipping():
                if not (tab and mark and name and index.isdigit()):
                    raise DataError(
                        f"{where} is {line[:60]!r}, not 'NAME.jpg#0<TAB>a caption'. Correct or delete it."
                    )
                captions.setdefault(name, []).extend(findings.stripped([caption], f"{where} ({name})"))
        return captions


def read_names(file: str | Path) -> list[str]:
    """The image names of a split list, one a line. Raises a DataError if the file cannot be read."""
    return [line.strip() for _, line in text_lines(file)]
