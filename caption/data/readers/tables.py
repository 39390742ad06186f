"""Own data as tables: CSV and JSON lines."""

from __future__ import annotations

import ast
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, NamedTuple

from caption.core.errors import DataError, number_of
from caption.data.findings import Findings
from caption.data.readers.base import (
    LINE_END,
    LIST,
    CaptionText,
    CheckedReader,
    Entry,
)
from caption.data.text_files import (
    JsonError,
    json_or_none,
    load_json,
    numbered_lines,
    short_repr,
)

DELIMITERS = (",", ";", "\t", "|")
IMAGE_NAME = re.compile(r".+\.(jpe?g|png|webp|gif|bmp|tiff?|heic)", re.IGNORECASE)
"""An image's id that is the name of its file."""
HEADER = 10_000
"""Number of characters of a CSV text that are searched for the header."""


class Keys(NamedTuple):
    """The columns or keys that an entry may have, in order of preference."""

    image: tuple[str, ...] = ("image_id", "image", "file_name", "filename", "image_name", "id")
    """Of the id or name of the image."""
    file: tuple[str, ...] = ("image", "file_name", "filename", "image_name")
    caption: tuple[str, ...] = ("caption", "text", "captions", "sentences", "raw", "comment")
    """Of the caption, or of a list of them."""
    split: str = "split"

    @classmethod
    def chosen(cls, image: str | None, caption: str | None, split: str) -> Keys:
        """The keys that a user chose; None = the usual ones."""
        usual = cls(split=split)
        usual = usual._replace(caption=(caption,)) if caption else usual
        return usual._replace(image=(image,), file=(image,)) if image else usual


USUAL_KEYS = Keys()
ENTRY_KEYS = (*USUAL_KEYS.file, "image_id", "caption", "text")
"""Keys that distinguish an entry from other JSON objects."""


def keyed_entry(where: str, values: Mapping[str, Any], keys: Keys) -> Entry:
    """An entry from values by column or key; `where` is its place.

    Raises:
        DataError: it names no image, or its captions or its split are not text.
    """
    image, file, captions = (
        next((values[key] for key in names if key in values), None)
        for names in (keys.image, keys.file, keys.caption)
    )
    if isinstance(image, str):
        image = image.strip()
    if isinstance(image, float) and image.is_integer():  # pandas
        image = int(image)
    if not isinstance(image, (int, str)) or isinstance(image, bool) or image == "":
        raise DataError(f"{where} names no image (found {short_repr(image)}). Name it as '{keys.file[0]}'.")
    if file is None and isinstance(image, str) and IMAGE_NAME.fullmatch(image):
        file = image
    texts = _listed(captions) if isinstance(captions, str) else captions
    if isinstance(texts, list):
        texts = [text.get("caption") if isinstance(text, dict) else text for text in texts]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        fault = f"has no caption that is text (found {short_repr(captions)})"
        raise DataError(f"{where} {fault}. Write one as '{keys.caption[0]}'.")
    split = values.get(keys.split)
    if not isinstance(split, (str, type(None))):
        raise DataError(f"{where} has the split {short_repr(split)}, which is not text. Correct it.")
    return Entry(
        where, image, "" if file is None else str(file).strip(), texts, (split or "").strip() or None
    )


def _listed(caption: str) -> list[Any]:
    """The captions in a text that is a list of them, exactly as JSON or Python writes it; otherwise the text itself."""
    captions = None
    if LIST.fullmatch(caption) and (captions := json_or_none(caption)) is None:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            captions = ast.literal_eval(caption)
            # NumPy's arrays have no commas: Python would join their texts.
            captions = captions if repr(captions) == caption else None
    return list(captions) if isinstance(captions, (list, tuple)) else [caption]


def csv_delimiter(text: str, keys: Keys = USUAL_KEYS, delimiter: str | None = None) -> str | None:
    """The delimiter that splits the header of a CSV text into columns of images and captions; None if none does.

    Args:
        text: the whole file.
        keys: the columns, in lower case.
        delimiter: the only one that is tried; None = comma, semicolon, tab and bar.
    """
    for tried in DELIMITERS if delimiter is None else (delimiter,):
        columns = set(_columns(text, tried))
        if columns.intersection(keys.image) and columns.intersection(keys.caption):
            return tried
    return None


def other_delimiter(head: Sequence[str]) -> str | None:
    """The delimiter of a table whose columns have other names, or none: it splits all these lines into as many cells.

    Args:
        head: the first lines of a text.

    Returns:
        None if there are fewer than two lines, or no delimiter does.
    """
    for tried in DELIMITERS if len(head) > 1 else ():
        with suppress(csv.Error):
            widths = {len(cells) for cells in csv.reader(head, delimiter=tried, strict=True)}
            if len(widths) == 1 and widths != {1}:
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


def _is_entry(data: Any) -> bool:
    return isinstance(data, dict) and any(key in data for key in ENTRY_KEYS)


@dataclass
class TableReader(CheckedReader):
    """A file of entries (image, caption, optional split); an image may have several entries.

    An image's id is its `image_id` if it has one, otherwise its name. If no entry has a split, all images are training
    images, or `fractions` divide them by a hash of their names (see `hashed_split`): the same division every time.

    Args:
        captions: the file, in UTF-8, with or without byte order mark.
        images: the folder that image names are relative to; None = the file's own.
        image_key: column or key of the image's name; None = image, file_name or filename.
        caption_key: that of the caption; None = caption or text.
        split_key: that of the split: train, val or test. All entries have one, or none.
        fractions: for a file without splits, the share of each split: `{train: 0.8, val: 0.1, test: 0.1}`; None =
            all images are training images.
    """

    captions: str
    images: str | None = None
    image_key: str | None = None
    caption_key: str | None = None
    split_key: str = "split"
    fractions: dict[str, float] | None = None

    @classmethod
    def entries(cls, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """The entries of a file with the usual keys."""
        return cls(file.name).training_entries(file, findings)


@dataclass
class Csv(TableReader):
    """Rows like `a.jpg,"A dog, running.",train` under the header `image,caption,split`.

    An image has one row for each of its captions. Cells in double quotes may hold delimiters, line ends, and quotes,
    which are doubled. Column names ignore case and spaces around them; other columns are ignored. For the other
    arguments see `TableReader`.

    Args:
        delimiter: the character between cells; None = the first of comma, semicolon, tab and bar that splits the header
            into these columns.
    """

    format: ClassVar[str] = "CSV"
    delimiter: str | None = None

    @classmethod
    def matches(cls, file: CaptionText) -> bool:
        return csv_delimiter(file.text) is not None

    def training_entries(self, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """One entry for each row below the header. Rows of blank cells, which spreadsheets write, are left out."""
        image, caption = (key and key.casefold() for key in (self.image_key, self.caption_key))
        keys = Keys.chosen(image, caption, self.split_key.casefold())
        delimiter = csv_delimiter(file.text, keys, self.delimiter)
        if delimiter is None:
            raise DataError(
                f"{file.name} begins with {(file.head or [''])[0][:60]!r}, but its header must have the columns "
                f"'{keys.file[0]}' and '{keys.caption[0]}'. Add the header, or name the columns that the file has."
            )
        columns = _columns(file.text, delimiter)
        for column in (*keys.image, *keys.caption):
            if columns.count(column) > 1:
                raise DataError(f"{file.name} has two columns '{column}': rename one.")
        # Not a DictReader: it skips blank lines without counting them, and messages name lines.
        table = _table(file.text, delimiter)
        is_header = True
        while True:
            where = f"line {table.line_num + 1} of {file.name}"
            with findings:
                try:
                    cells = [cell.strip() for cell in next(table)]
                except StopIteration:
                    return
                except csv.Error as error:
                    raise DataError(
                        f"{where} is not a row of CSV: {error}. Quote its cells properly."
                    ) from None
                if is_header or not any(cells):
                    is_header = is_header and not any(cells)
                    continue
                if len(cells) != len(columns):
                    raise DataError(
                        f"{where} has {number_of(len(cells), 'cell')}, but the header {len(columns)}. Quote cells that "
                        f"hold the delimiter {delimiter!r}."
                    )
                entry = keyed_entry(where, dict(zip(columns, cells, strict=True)), keys)
                mark = PurePath(entry.file).suffix.lower() or delimiter
                for joined in (cell for cell in cells if LINE_END.search(cell) and mark in cell.lower()):
                    raise DataError(
                        f"{where} has a cell of {len(LINE_END.findall(joined)) + 1} lines with {mark!r} in them, "
                        f"{short_repr(joined)}: a quote that is left open has joined rows. Close it, or double it."
                    )
                yield entry


class JsonLines(TableReader):
    """Lines like `{"image": "a.jpg", "caption": "A dog.", "split": "train"}`, a JSON list of such objects, or a JSON
    object of captions by image.

    A caption may be a string or a list of strings. Other keys are ignored. For the arguments see `TableReader`.
    """

    format: ClassVar[str] = "JSON lines"

    @classmethod
    def matches(cls, file: CaptionText) -> bool:
        if file.content is not None:
            return isinstance(file.content, list) or _is_entry(file.content)
        return any(_is_entry(json_or_none(line)) for line in file.head)

    def training_entries(self, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """One entry for each object."""
        keys = Keys.chosen(self.image_key, self.caption_key, self.split_key)
        begins_list = file.text.lstrip()[:1] == "["
        content = file.json if begins_list else file.object  # pretty-printed, one object has several lines
        is_one_text = begins_list or bool(content)
        items: Iterable[tuple[str, Any]]
        if not is_one_text:
            items = ((f"line {number}", line) for number, line in numbered_lines(file.text))
        elif begins_list or any(key in content for key in (*ENTRY_KEYS, *keys.file, *keys.caption)):
            entries = enumerate(content if begins_list else [content])
            items = ((f"entry {number}", item) for number, item in entries)
        else:
            image, caption = keys.image[0], keys.caption[0]
            items = (
                (f"image {name[:100]}", {image: name, caption: texts}) for name, texts in content.items()
            )
        for place, item in items:
            where = f"{place} of {file.name}"
            with findings:
                try:
                    values = item if is_one_text else load_json(item)
                except JsonError as error:
                    raise DataError(f"{where} is not JSON: {error.fault}. Correct or delete it.") from None
                if not isinstance(values, dict):
                    names = f"'{keys.file[0]}' and '{keys.caption[0]}'"
                    raise DataError(f"{where} is not a JSON object with {names}. Correct or delete it.")
                yield keyed_entry(where, values, keys)
