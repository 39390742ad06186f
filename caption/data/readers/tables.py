"""Own data as tables: CSV, JSON lines, and the splits of data that has none."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from caption.data.files import JsonError, load_json, read_text, text_lines, user_path
from caption.data.files import field as entry_field
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

DELIMITERS = (",", ";", "\t", "|")
CAPTIONS = "captions"


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

    images: str | None
    fractions: dict[str, float] | None

    @abstractmethod
    def rows(self, file: Path, findings: Findings) -> Iterator[Row]:
        """The rows of the file. Malformed ones are reported to `findings` and left out.

        Raises:
            DataError: the file cannot be read, or has another format.
        """

    def collect(self, findings: Findings) -> Splits:
        file = user_path(self.file)
        folder = file.parent if self.images is None else user_path(self.images)
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
                image = gathered.setdefault(path, _Gathered(row, split))
                if split == image.split:
                    image.captions += findings.stripped(row.captions, f"{where} ({row.image})", path)
                elif split not in image.other_splits:
                    image.other_splits.add(split)
                    first = f"in '{image.split}' on line {image.row.line}"
                    findings.add(Kind.OVERLAP, f"{where} ({row.image}) is in '{split}', but {first}", path)
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


@dataclass
class Csv(Table):
    """Rows like `a.jpg,"A dog, running.",train` under the header `image,caption,split`.

    An image has one row for each of its captions. The file is UTF-8, with or without byte order mark. Cells in double
    quotes may hold delimiters, line ends, and quotes, which are doubled. Column names ignore case and spaces around
    them; other columns are ignored.

    Args:
        file: the file.
        images: the folder that image names are relative to; None = the file's own.
        image_column: header of the column of image names.
        caption_column: header of the column of captions.
        split_column: header of the column of splits (train, val or test), if there is one.
        delimiter: the character between cells; None = the first of comma, semicolon, tab and bar that splits the header
            into these columns.
        fractions: for a file without splits, the share of each split: `{train: 0.8, val: 0.1, test: 0.1}`; None =
            all images are training images.
    """

    file: str
    images: str | None = None
    image_column: str = "image"
    caption_column: str = "caption"
    split_column: str = "split"
    delimiter: str | None = None
    fractions: dict[str, float] | None = None

    def rows(self, file: Path, findings: Findings) -> Iterator[Row]:
        text = read_text(file)
        delimiter = self._delimiter(text, file)
        table = CsvRows(text, delimiter, f"'{file}'")
        while True:
            with findings.skipping():
                try:
                    line, row = next(table)
                except StopIteration:
                    return
                yield self._row(line, row, f"line {line} of '{file}'")

    def _row(self, line: int, row: Mapping[str, str], where: str) -> Row:
        image = row[self.image_column.casefold()]
        if not image:
            raise DataError(f"{where} names no image. Write its name, or delete the row.")
        return Row(
            line, image, (row[self.caption_column.casefold()],), row.get(self.split_column.casefold()) or None
        )

    def _delimiter(self, text: str, file: Path) -> str:
        """The delimiter that splits the header into both columns."""
        wanted = {self.image_column.casefold(), self.caption_column.casefold()}
        for delimiter in DELIMITERS if self.delimiter is None else (self.delimiter,):
            columns = columns_of(text, delimiter)
            if wanted <= set(columns):
                twice = [column for column in columns if columns.count(column) > 1 and column in wanted]
                if twice:
                    raise DataError(f"'{file}' has two columns '{twice[0]}': rename one.")
                return delimiter
        head = next((line for line in text.splitlines() if line.strip()), "")
        raise DataError(
            f"'{file}' begins with {head[:60]!r}, but its header must have the columns '{self.image_column}' and "
            f"'{self.caption_column}'. Add the header, or name the columns that the file has."
        )


class CsvRows:
    """The rows below the header of a CSV text, each with its line and its cells by column.

    Column names are in lower case; names and cells are without spaces at their ends. After a DataError the iteration
    goes on with the next row. Rows of blank cells, which spreadsheets write, are left out.

    Args:
        text: of the whole file.
        delimiter: between cells.
        name: of the file, in quotes, for messages.

    Raises:
        DataError: a row is not CSV, or has more or fewer cells than the header.
    """

    def __init__(self, text: str, delimiter: str, name: str) -> None:
        self.name = name
        self.columns = columns_of(text, delimiter)
        self._table = _table(text, delimiter)
        self._header_seen = False

    def __iter__(self) -> CsvRows:
        return self

    def __next__(self) -> tuple[int, dict[str, str]]:
        while True:
            line = self._table.line_num + 1
            where = f"line {line} of {self.name}"
            try:
                cells = next(self._table)
            except csv.Error as error:
                raise DataError(f"{where} is not a row of CSV: {error}. Quote its cells properly.") from None
            if not any(cell.strip() for cell in cells):
                continue
            if not self._header_seen:
                self._header_seen = True
                continue
            if len(cells) != len(self.columns):
                raise DataError(
                    f"{where} has {len(cells)} cells, but the header {len(self.columns)}. Quote cells that hold the "
                    "delimiter."
                )
            return line, dict(zip(self.columns, (cell.strip() for cell in cells), strict=True))


def columns_of(text: str, delimiter: str) -> list[str]:
    """The column names of a CSV text, in lower case, without spaces at the ends; [] if there is no header."""
    try:
        header = next(row for row in _table(text, delimiter) if any(cell.strip() for cell in row))
    except (StopIteration, csv.Error):
        return []
    return [column.strip().casefold() for column in header]


def _table(text: str, delimiter: str) -> Any:
    """A csv.reader; its `line_num` counts lines of the file, also those within quotes."""
    try:
        return csv.reader(
            io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True
        )
    except TypeError:
        raise DataError(f"the delimiter {delimiter!r} is not a single character. Give one.") from None


@dataclass
class JsonLines(Table):
    """Lines like `{"image": "a.jpg", "caption": "A dog.", "split": "train"}`.

    A caption may be a string or a list of strings; its key may also be `captions`. Several lines may name the same
    image. Other keys are ignored.

    Args:
        file: the file, in UTF-8.
        images: the folder that image names are relative to; None = the file's own.
        image_key: key of the image's name.
        caption_key: key of the caption or captions.
        split_key: key of the split: train, val or test. All lines have it, or none.
        fractions: for a file without splits, the share of each split: `{train: 0.8, val: 0.1, test: 0.1}`; None =
            all images are training images.
    """

    file: str
    images: str | None = None
    image_key: str = "image"
    caption_key: str = "caption"
    split_key: str = "split"
    fractions: dict[str, float] | None = None

    def rows(self, file: Path, findings: Findings) -> Iterator[Row]:
        for number, line in text_lines(file):
            with findings.skipping():
                yield self._row(number, line, f"line {number} of '{file}'")

    def _row(self, number: int, line: str, where: str) -> Row:
        try:
            entry = load_json(line)
        except JsonError as error:
            raise DataError(f"{where} is not JSON: {error.fault}. Correct or delete it.") from None
        if not isinstance(entry, dict):
            raise DataError(f"{where} is not a JSON object with '{self.image_key}'. Correct or delete it.")
        image = entry_field(entry, self.image_key, str, where).strip()
        if not image:
            raise DataError(f"{where} names no image. Write its '{self.image_key}'.")
        split = None
        if entry.get(self.split_key) is not None:
            split = entry_field(entry, self.split_key, str, where).strip()
        return Row(number, image, self._captions(entry, where), split)

    def _captions(self, entry: dict[str, Any], where: str) -> tuple[str, ...]:
        key = CAPTIONS if self.caption_key not in entry and CAPTIONS in entry else self.caption_key
        found = entry_field(entry, key, (str, list), where)
        captions = [found] if isinstance(found, str) else found
        if not all(isinstance(caption, str) for caption in captions):
            raise DataError(f"{where} has captions that are not text. Correct them.")
        return tuple(captions)


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
