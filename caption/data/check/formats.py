"""What a file of captions is, by its content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from caption.data.readers.captions import read_json, read_text, text_lines
from caption.data.readers.csv import Csv
from caption.data.readers.findings import Findings
from caption.data.readers.jsonl import JsonLines
from caption.data.readers.tables import Table
from caption.errors import DataError

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".token")
"""Of the files in a folder that are looked at."""
LOOKED_AT = 20  # lines or images that tell what a file is and where its images are

_TOKENS = re.compile(r"[^\t]+#\d+\t")
_EXPECTED = (
    "It may be COCO captions JSON, Karpathy's JSON, a Flickr token file, CSV with the columns image and caption, or "
    "JSON lines with the keys image and caption."
)


class OtherKindError(DataError):
    """A sound file, but no captions of a known format."""


@dataclass
class Source:
    """A caption file that was recognised."""

    format: str
    """COCO, Karpathy, Flickr, CSV or JSON lines."""
    file: Path
    examples: list[str] = field(default_factory=list)
    """Names of some of its images."""


def recognised_in(folder: Path) -> list[Source]:
    """All caption files directly in a folder, by name.

    Raises:
        DataError: there is none, or one that is damaged: passed over, it would be missing without a word.
    """
    try:
        files = sorted(
            file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file()
        )
    except OSError as error:
        raise DataError(f"'{folder}' cannot be read: {error.strerror}.") from None
    found = []
    for file in files:
        with suppress(OtherKindError):
            found.append(recognised(file))
    if not found:
        raise DataError(f"'{folder}' has no caption file that is recognised. {_EXPECTED}")
    return found


def recognised(file: Path) -> Source:
    """What a caption file is; damage in single lines or entries does not matter.

    Raises:
        OtherKindError: it is none of the formats.
        DataError: it cannot be read.
    """
    text = read_text(file)
    if not text.strip():
        raise OtherKindError(f"'{file}' is empty. {_EXPECTED}")
    if text.lstrip()[0] == "{":
        return _json(text, file)
    lines = [line for _, line in islice(text_lines(file), LOOKED_AT)]
    tokens = [line for line in lines if _TOKENS.match(line)]
    if tokens:
        return Source("Flickr", file, [line.partition("\t")[0].rpartition("#")[0] for line in tokens])
    if text.lstrip()[0] == "[" and file.suffix.lower() not in (".csv", ".tsv"):
        raise OtherKindError(f"'{file}' is a JSON list. {_EXPECTED}")
    try:
        return Source("CSV", file, _examples(Csv(str(file)), file))
    except DataError as error:
        raise OtherKindError(f"{error} {_EXPECTED}") from None


def _json(text: str, file: Path) -> Source:
    """One object in the whole file, or one a line."""
    if '"bbox"' in text and '"caption"' not in text:  # without parsing: COCO's files of boxes are huge
        raise OtherKindError(f"'{file}' holds boxes, not captions. Give the captions JSON, captions_*.json.")
    for data in _objects(text, file):
        if isinstance(data, dict) and isinstance(data.get("images"), list):
            return _json_images(data, file)
        if isinstance(data, dict) and "image" in data:
            return Source("JSON lines", file, _examples(JsonLines(str(file)), file))
    raise OtherKindError(f"'{file}' is JSON of another kind. {_EXPECTED}")


def _objects(text: str, file: Path) -> Iterator[Any]:
    """What the first lines hold, each for itself: one may be damaged, others then tell. At last, the whole."""
    for line in islice(filter(None, map(str.strip, text.split("\n"))), LOOKED_AT):
        with suppress(json.JSONDecodeError):
            yield json.loads(line)
    yield read_json(file)


def _json_images(data: dict[str, Any], file: Path) -> Source:
    some = [entry for entry in data["images"][:LOOKED_AT] if isinstance(entry, dict)]
    if isinstance(data.get("annotations"), list):
        return Source("COCO", file, [str(entry.get("file_name")) for entry in some])
    if any("sentences" in entry for entry in some):
        names = [f"{entry.get('filepath', '')}/{entry.get('filename')}".lstrip("/") for entry in some]
        return Source("Karpathy", file, names)
    raise OtherKindError(f"'{file}' has images, but neither 'annotations' nor 'sentences'. {_EXPECTED}")


def _examples(reader: Table, file: Path) -> list[str]:
    return [row.image for row in islice(reader.rows(file, Findings()), LOOKED_AT)]
