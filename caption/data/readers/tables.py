"""Own data as tables: the part that CSV and JSON lines share, and the splits of data that has none."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from caption.data.readers.captions import (
    SPLIT_NAMES,
    CaptionedImage,
    CheckedReader,
    Findings,
    Kind,
    Splits,
    check_split_names,
)
from caption.errors import DataError


class Row(NamedTuple):
    """One row of a table: an image with one caption or several."""

    line: int
    """The line of the file on which the row begins, from 1."""
    image: str
    """Name of the image, without spaces at the ends."""
    captions: tuple[str, ...]
    """As written; a blank one is an empty caption."""
    split: str | None
    """Its split; None if the row has none."""


@dataclass
class _Gathered:
    """The captions of one image, from all its rows."""

    row: Row
    """The first one."""
    split: str
    captions: list[str] = field(default_factory=list)
    other_splits: set[str] = field(default_factory=set)
    """Those of later rows, each reported once."""


class Table(CheckedReader):
    """A file of rows (image, caption, optional split); an image may have several rows. An image's id is its name.

    If no row has a split, all images are training images, or `fractions` divide them by a hash of their names
    (see `hashed_split`): the same division every time.
    """

    file: str
    images: str | None
    fractions: dict[str, float] | None

    @property
    def source(self) -> str:
        return f"'{self.file}'"

    @abstractmethod
    def rows(self, file: Path, findings: Findings) -> Iterator[Row]:
        """The rows of the file. Malformed ones are reported to `findings` and left out.

        Raises:
            DataError: the file cannot be read, or has another format.
        """

    def collect(self, findings: Findings) -> Splits:
        file = Path(self.file).expanduser()
        folder = file.parent if self.images is None else Path(self.images).expanduser()
        rows = list(self.rows(file, findings))
        has_splits = any(row.split is not None for row in rows)
        if self.fractions is not None:
            check_fractions(self.fractions)
            if has_splits:
                raise DataError(f"'{file}' already has splits: leave out the fractions, or its splits.")
        gathered: dict[Path, _Gathered] = {}
        for row in rows:
            where, path = f"line {row.line} of '{file}'", folder / row.image
            with findings.skipping():
                split = self._split(row, has_splits, where)
                self._add(row, split, gathered.setdefault(path, _Gathered(row, split)), where, path, findings)
        splits: Splits = {split: [] for split in SPLIT_NAMES if split in (self.fractions or ())}
        for path, image in gathered.items():
            captioned = CaptionedImage(image.row.image, path, tuple(image.captions))
            splits.setdefault(image.split, []).append(captioned)
        return {split: splits[split] for split in SPLIT_NAMES if split in splits}

    def _split(self, row: Row, has_splits: bool, where: str) -> str:
        if not has_splits:
            return hashed_split(row.image, self.fractions) if self.fractions else "train"
        names = ", ".join(SPLIT_NAMES)
        if row.split is None:
            raise DataError(f"{where} has no split, though other lines have one. Give it one of {names}.")
        if row.split not in SPLIT_NAMES:
            raise DataError(f"{where} has the split '{row.split}', which is none of {names}. Correct it.")
        return row.split

    def _add(
        self, row: Row, split: str, image: _Gathered, where: str, path: Path, findings: Findings
    ) -> None:
        """Add the captions of a row to its image."""
        if split == image.split:
            for caption in row.captions:
                if caption.strip():
                    image.captions.append(caption.strip())
                else:
                    findings.add(Kind.EMPTY, f"{where} ({row.image})", path)
        elif split not in image.other_splits:
            image.other_splits.add(split)
            text = f"{where} ({row.image}) is in '{split}', but in '{image.split}' on line {image.row.line}"
            findings.add(Kind.OVERLAP, text, path)


def hashed_split(name: str, fractions: Mapping[str, float]) -> str:
    """The split of an image, by a hash of its name: the same in every run and on every machine.

    u is the first 53 bits of SHA-256 of the name in UTF-8, as a number in [0, 1). Images with u below the fraction of
    train are training images, those with u in the next fraction are val, the rest test. Adding or removing images
    does not move others. The size of a split of fraction f of n images has mean n·f and standard deviation
    sqrt(n·f·(1 - f)).

    Args:
        name: the image, as the caption file spells it.
        fractions: by split, of sum 1; see `check_fractions`.
    """
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    u = (int.from_bytes(digest[:8], "big") >> 11) / 2**53  # a float holds 53 bits exactly
    given = [split for split in SPLIT_NAMES if split in fractions]
    end = 0.0
    for split in given[:-1]:
        end += fractions[split]
        if u < end:
            return split
    return given[-1]


def check_fractions(fractions: Mapping[str, float]) -> None:
    """Raise a DataError unless the keys are splits and the fractions are positive, of sum 1."""
    check_split_names(fractions)
    total = sum(fractions.values())
    if not all(fraction > 0 for fraction in fractions.values()) or not math.isclose(total, 1, abs_tol=1e-6):
        shares = ", ".join(f"{split} {fraction:g}" for split, fraction in fractions.items())
        raise DataError(f"the fractions of the splits ({shares}) must be above 0 and add up to 1.")
