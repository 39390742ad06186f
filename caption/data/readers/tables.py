"""Own data as tables: CSV and JSON lines."""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from caption.data.files import JsonError, load_json, numbered_lines, parsed, read_text, shortened, user_path
from caption.data.readers.captions import (
    SPLIT_NAMES,
    CaptionedImage,
    CheckedReader,
    Entry,
    Findings,
    Kind,
    Splits,
)
from caption.data.readers.fractions import check_fractions, hashed_split
from caption.errors import DataError

DELIMITERS = (",", ";", "\t", "|")
HEADER = 10_000
"""The characters of a CSV text that are searched for the header."""


class Keys(NamedTuple):
    """The columns or keys that an entry may have, in order of preference."""

    image: tuple[str, ...] = ("image_id", "image", "file_name", "filename", "id")
    """Of the id or name of the image."""
    file: tuple[str, ...] = ("image", "file_name", "filename")
    caption: tuple[str, ...] = ("caption", "text", "captions", "sentences")
    """Of the caption, or of a list of them."""
    split: str = "split"

    @classmethod
    def of(cls, image: str | None, caption: str | None, split: str) -> Keys:
        """The keys that a user named; None = the usual ones."""
        usual = cls(split=split)
        usual = usual._replace(caption=(caption,)) if caption else usual
        return usual._replace(image=(image,), file=(image,)) if image else usual


USUAL_KEYS = Keys()


def keyed_entry(where: str, values: Mapping[str, Any], keys: Keys) -> Entry:
    """An entry from values by column or key; `where` is its place.

    Raises:
        DataError: it names no image, its captions are not texts, or its split is not.
    """
    image, file, captions = (
        next((values[key] for key in names if key in values), None)
        for names in (keys.image, keys.file, keys.caption)
    )
    if isinstance(image, str):
        image = image.strip()
    if not isinstance(image, (int, str)) or isinstance(image, bool) or image == "":
        raise DataError(f"{where} names no image (found {shortened(image)}). Name it as '{keys.file[0]}'.")
    texts = [captions] if isinstance(captions, str) else captions
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        fault = f"has no caption that is text (found {shortened(captions)})"
        raise DataError(f"{where} {fault}. Write one as '{keys.caption[0]}'.")
    split = values.get(keys.split)
    if not isinstance(split, (str, type(None))):
        raise DataError(f"{where} has the split {shortened(split)}, which is not text. Correct it.")
    return Entry(
        where, image, "" if file is None else str(file).strip(), texts, (split or "").strip() or None
    )


def csv_entries(
    text: str, name: str, findings: Findings, keys: Keys = USUAL_KEYS, delimiter: str | None = None
) -> Iterator[Entry]:
    """One entry for each row below the header of a CSV text. Rows of blank cells, which spreadsheets write, are left
    out. For `keys` and `delimiter` see `csv_delimiter`.

    Raises:
        DataError: the header lacks a column or has one twice.
    """
    delimiter = csv_delimiter(text, keys, delimiter)
    if delimiter is None:
        head = next((line for line in text[:HEADER].splitlines() if line.strip()), "")
        raise DataError(
            f"{name} begins with {head[:60]!r}, but its header must have the columns '{keys.file[0]}' and "
            f"'{keys.caption[0]}'. Add the header, or name the columns that the file has."
        )
    columns = _columns(text, delimiter)
    for column in (*keys.image, *keys.caption):
        if columns.count(column) > 1:
            raise DataError(f"{name} has two columns '{column}': rename one.")
    table = _table(text, delimiter)
    is_header = True
    while True:
        where = f"line {table.line_num + 1} of {name}"
        with findings.skipping():
            try:
                cells = [cell.strip() for cell in next(table)]
            except StopIteration:
                return
            except csv.Error as error:
                raise DataError(f"{where} is not a row of CSV: {error}. Quote its cells properly.") from None
            if is_header or not any(cells):
                is_header = is_header and not any(cells)
                continue
            if len(cells) != len(columns):
                raise DataError(
                    f"{where} has {len(cells)} cells, but the header {len(columns)}. Quote cells that hold the "
                    "delimiter."
                )
            yield keyed_entry(where, dict(zip(columns, cells, strict=True)), keys)


def csv_delimiter(text: str, keys: Keys = USUAL_KEYS, delimiter: str | None = None) -> str | None:
    """The delimiter that splits the header of a CSV text into columns of images and captions; None if none does.

    Args:
        text: of the whole file.
        keys: the columns, in lower case.
        delimiter: the only one that is tried; None = comma, semicolon, tab and bar.
    """
    for tried in DELIMITERS if delimiter is None else (delimiter,):
        columns = set(_columns(text, tried))
        if columns.intersection(keys.image) and columns.intersection(keys.caption):
            return tried
    return None


def _columns(text: str, delimiter: str) -> list[str]:
    """The names in the header, in lower case; [] if there is no header."""
    try:
        header = next(row for row in _table(text[:HEADER], delimiter) if any(cell.strip() for cell in row))
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


def json_entries(content: Any, name: str, findings: Findings, keys: Keys = USUAL_KEYS) -> Iterator[Entry]:
    """One entry for each object: of JSON lines as text, or of a parsed JSON list."""
    is_text = isinstance(content, str)
    for number, item in numbered_lines(content) if is_text else enumerate(content):
        where = f"{'line' if is_text else 'entry'} {number} of {name}"
        with findings.skipping():
            try:
                values = load_json(item) if is_text else item
            except JsonError as error:
                raise DataError(f"{where} is not JSON: {error.fault}. Correct or delete it.") from None
            if not isinstance(values, dict):
                raise DataError(
                    f"{where} is not a JSON object with '{keys.file[0]}' and '{keys.caption[0]}'. Correct or delete it."
                )
            yield keyed_entry(where, values, keys)


@dataclass
class _JoinedEntries:
    """The captions of one image, from all its entries."""

    first: Entry
    split: str
    captions: list[str] = field(default_factory=list)
    other_splits: set[str] = field(default_factory=set)
    """Those of later entries, each reported once."""


@dataclass
class Table(CheckedReader):
    """A file of entries (image, caption, optional split); an image may have several entries.

    An image's id is its `image_id` if it has one, otherwise its name. If no entry has a split, all images are training
    images, or `fractions` divide them by a hash of their names (see `hashed_split`): the same division every time.

    Args:
        file: the file, in UTF-8, with or without byte order mark.
        images: the folder that image names are relative to; None = the file's own.
        image_key: column or key of the image's name; None = image, file_name or filename.
        caption_key: that of the caption; None = caption or text.
        split_key: that of the split: train, val or test. All entries have one, or none.
        fractions: for a file without splits, the share of each split: `{train: 0.8, val: 0.1, test: 0.1}`; None =
            all images are training images.
    """

    file: str
    images: str | None = None
    image_key: str | None = None
    caption_key: str | None = None
    split_key: str = "split"
    fractions: dict[str, float] | None = None

    @abstractmethod
    def entries(self, text: str, findings: Findings) -> Iterator[Entry]:
        """The entries in the text of the file. Malformed ones are reported to `findings` and left out.

        Raises:
            DataError: the file has another format.
        """

    def collect(self, findings: Findings) -> Splits:
        file = user_path(self.file)
        folder = file.parent if self.images is None else user_path(self.images)
        entries = list(self.entries(read_text(file), findings))
        has_splits = any(entry.split is not None for entry in entries)
        if self.fractions is not None:
            check_fractions(self.fractions)
            if has_splits:
                raise DataError(f"'{file}' already has splits: leave out the fractions, or its splits.")
        by_path: dict[Path, _JoinedEntries] = {}
        for entry in entries:
            path = folder / entry.file
            with findings.skipping():
                if not entry.file:
                    raise DataError(f"{entry.where} names no file of an image. Write its name as 'image'.")
                split = self._split(entry, has_splits)
                image = by_path.setdefault(path, _JoinedEntries(entry, split))
                if split == image.split:
                    image.captions += findings.stripped(entry, path)
                elif split not in image.other_splits:
                    image.other_splits.add(split)
                    text = f"{entry.where} ({entry.file}) is in '{split}', but {image.first.where} in '{image.split}'"
                    findings.add(Kind.OVERLAP, text, path)
        splits: Splits = {split: [] for split in SPLIT_NAMES if split in (self.fractions or ())}
        for path, image in by_path.items():
            captioned = CaptionedImage(image.first.image, path, tuple(image.captions))
            splits.setdefault(image.split, []).append(captioned)
        return {split: splits[split] for split in SPLIT_NAMES if split in splits}

    def _split(self, entry: Entry, has_splits: bool) -> str:
        if not has_splits:
            return hashed_split(entry.file, self.fractions) if self.fractions else "train"
        names = ", ".join(SPLIT_NAMES)
        if entry.split is None:
            raise DataError(
                f"{entry.where} has no split, though other entries have one. Give it one of {names}."
            )
        if entry.split not in SPLIT_NAMES:
            raise DataError(
                f"{entry.where} has the split '{entry.split}', which is none of {names}. Correct it."
            )
        return entry.split


@dataclass
class Csv(Table):
    """Rows like `a.jpg,"A dog, running.",train` under the header `image,caption,split`.

    An image has one row for each of its captions. Cells in double quotes may hold delimiters, line ends, and quotes,
    which are doubled. Column names ignore case and spaces around them; other columns are ignored. For the other
    arguments see `Table`.

    Args:
        delimiter: the character between cells; None = the first of comma, semicolon, tab and bar that splits the header
            into these columns.
    """

    delimiter: str | None = None

    def entries(self, text: str, findings: Findings) -> Iterator[Entry]:
        image, caption = (key and key.casefold() for key in (self.image_key, self.caption_key))
        keys = Keys.of(image, caption, self.split_key.casefold())
        return csv_entries(text, self.source, findings, keys, self.delimiter)


class JsonLines(Table):
    """Lines like `{"image": "a.jpg", "caption": "A dog.", "split": "train"}`, or a JSON list of such objects.

    A caption may be a string or a list of strings. Other keys are ignored. For the arguments see `Table`.
    """

    def entries(self, text: str, findings: Findings) -> Iterator[Entry]:
        content = parsed(text, self.source) if text.lstrip()[:1] == "[" else text
        keys = Keys.of(self.image_key, self.caption_key, self.split_key)
        return json_entries(content, self.source, findings, keys)
