"""Own data as CSV: a header, then a row for each caption with its image and, optionally, its split."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caption.data.files import read_text
from caption.data.readers.captions import Findings
from caption.data.readers.tables import Row, Table
from caption.errors import DataError

DELIMITERS = (",", ";", "\t", "|")


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
        table = _table(text, delimiter)
        header: list[str] = []
        while True:
            line = table.line_num + 1
            where = f"line {line} of '{file}'"
            with findings.skipping():
                try:
                    cells = next(table)
                except StopIteration:
                    return
                except csv.Error as error:
                    raise DataError(
                        f"{where} is not a row of CSV: {error}. Quote its cells properly."
                    ) from None
                if not any(cell.strip() for cell in cells):  # spreadsheets write rows of delimiters only
                    continue
                if not header:
                    header = [column.strip().casefold() for column in cells]
                    continue
                yield self._row(line, cells, header, where)

    def _row(self, line: int, cells: Sequence[str], header: list[str], where: str) -> Row:
        if len(cells) != len(header):
            raise DataError(
                f"{where} has {len(cells)} cells, but the header {len(header)}. Quote cells that hold the delimiter."
            )
        row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
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
