"""Own data as tables: what CSV and JSON lines have in common once a row is read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from caption.data.readers.captions import SPLIT_NAMES, CaptionedImage, Splits, located
from caption.data.readers.captions_checks import CheckedReader
from caption.data.readers.findings import EMPTY, OVERLAP, Finding, Findings
from caption.data.readers.splits import check_fractions, split_of
from caption.errors import DataError


class Row(NamedTuple):
    """One row of a table: an image with one caption or several."""

    line: int
    """The line of the file on which the row begins, from 1."""
    image: str
    """Name of the image, without spaces at the ends."""
    captions: tuple[str, ...]
    """As written; one that is blank is an empty caption."""
    split: str | None
    """Its split; None where the row does not say."""


class Table(CheckedReader):
    """A file of rows (image, caption, optional split); an image may have several. An image's id is its name.

    Where no row has a split, all images are training images, or `fractions` divide them by a hash of their names
    (`caption.data.readers.splits`): always in the same way, never at random.
    """

    file: str
    images: str | None
    fractions: dict[str, float] | None

    @property
    def source(self) -> str:
        return f"'{self.file}'"

    @abstractmethod
    def rows(self, file: Path, findings: Findings) -> Iterator[Row]:
        """The rows of the file; a malformed one is reported to `findings` and left out.

        Raises:
            DataError: the file cannot be read, or is of another kind.
        """

    def collect(self, findings: Findings) -> Splits:
        file = located(self.file)
        folder = file.parent if self.images is None else located(self.images)
        rows = list(self.rows(file, findings))
        has_splits = any(row.split is not None for row in rows)
        if self.fractions is not None:
            check_fractions(self.fractions)
            if has_splits:
                raise DataError(f"'{file}' says the splits itself: leave out the fractions, or its splits.")
        gathered: dict[Path, _Gathered] = {}
        for row in rows:
            with findings.skipping():
                split = self._split(row, has_splits, f"line {row.line} of '{file}'")
                image = gathered.setdefault(folder / row.image, _Gathered(row.image, split, row.line))
                image.add(row, split, file, folder, findings)
        splits: Splits = {split: [] for split in SPLIT_NAMES if split in (self.fractions or ())}
        for path, image in gathered.items():
            found = CaptionedImage(image.name, path, tuple(image.captions))
            splits.setdefault(image.split, []).append(found)
        return {split: splits[split] for split in SPLIT_NAMES if split in splits}

    def _split(self, row: Row, has_splits: bool, where: str) -> str:
        if not has_splits:
            return split_of(row.image, self.fractions) if self.fractions else "train"
        if row.split is None:
            raise DataError(f"{where} has no split, though others have one. Give it one of {_NAMES}.")
        if row.split not in SPLIT_NAMES:
            raise DataError(f"{where} has the split '{row.split}', which is none of {_NAMES}. Correct it.")
        return row.split


_NAMES = ", ".join(SPLIT_NAMES)


class _Gathered:
    """What the rows of one image add up to."""

    def __init__(self, name: str, split: str, line: int) -> None:
        self.name = name
        self.split = split
        self.line = line
        self.captions: list[str] = []
        self.elsewhere: set[str] = set()

    def add(self, row: Row, split: str, file: Path, folder: Path, findings: Findings) -> None:
        where = f"line {row.line} of '{file}' ({row.image})"
        if split != self.split:  # said once for each split that is one too many
            if split not in self.elsewhere:
                self.elsewhere.add(split)
                text = f"{where} is in '{split}', but in '{self.split}' on line {self.line}"
                findings.report([Finding(OVERLAP, text, (str(folder / row.image),))])
            return
        for caption in row.captions:
            if caption.strip():
                self.captions.append(caption.strip())
            else:
                findings.report([Finding(EMPTY, where, (str(folder / row.image),))])
