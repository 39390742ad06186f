"""Detects the format of a caption file by its content, and builds the reader for a file or folder.

File names matter only for the splits of COCO and Flickr, which have one file for each split.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from caption.core.errors import DataError, first_few
from caption.core.parts import Spec
from caption.data.findings import Findings
from caption.data.readers.base import ALL, EXAMINED, CaptionText, CheckedReader, DetectedFile, Layout
from caption.data.readers.coco import Coco
from caption.data.readers.flickr import Flickr
from caption.data.readers.karpathy import Karpathy
from caption.data.readers.tables import Csv, JsonLines, other_delimiter
from caption.data.splits import check_fractions
from caption.data.text_files import read_text, user_path

READERS: tuple[type[CheckedReader], ...] = (Flickr, Csv, JsonLines, Coco, Karpathy)
"""In the order in which they are tried."""
SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".token")
"""Suffixes of the files in a folder that are examined."""
EXPECTED = (
    "It may be COCO captions JSON, Karpathy's JSON, a Flickr token file, CSV with the columns image and caption, or "
    "JSON lines with the keys image and caption."
)


METADATA = {
    "*/metadata.csv": ("csv, ", "csv.DictReader(table.open(encoding='utf-8-sig', newline=''))"),
    "*/metadata.jsonl": ("", "map(json.loads, filter(str.strip, table.open(encoding='utf-8-sig')))"),
    "*/metadata.parquet": ("pyarrow.parquet, ", "pyarrow.parquet.read_table(table).to_pylist()"),
}
"""Tables of Hugging Face's image folders that no reader accepts: the module to import, and code for `table`'s rows."""
JOIN = (
    """python -c "import {module}json, pathlib; [print(json.dumps({{**row, 'file_name': """
    """(table.parent / row['file_name']).as_posix(), """
    """'split': {{'validation': 'val'}}.get(table.parent.name, table.parent.name)}})) """
    """for table in sorted(pathlib.Path().glob('{pattern}')) for row in {rows}]" > captions.jsonl"""
)
"""A command that joins the tables in the folders `train/`, `validation/` and `test/`."""


class OtherFormatError(DataError):
    """A sound file that does not hold captions in a known format."""


def detect_format(file: CaptionText) -> type[CheckedReader]:
    """The reader for the content of a caption file.

    Raises:
        OtherFormatError: its format is unknown.
        DataError: it begins like JSON, but is neither JSON nor JSON lines.
    """
    if not file.head:
        raise OtherFormatError(f"{file.name} is empty. {EXPECTED}")
    # Before parsing: COCO's files of boxes are huge.
    if '"bbox"' in file.text and '"caption' not in file.text:
        raise OtherFormatError(
            f"{file.name} holds boxes, not captions. Give the captions JSON, captions_*.json."
        )
    for reader in READERS:
        if reader.matches(file):
            return reader
    if (delimiter := other_delimiter(file.head)) is not None:
        raise OtherFormatError(
            f"{file.name} begins with {file.head[0][:60]!r}, which does not name the columns image and caption. Name "
            f"them in its first line: image{delimiter}caption."
        )
    if file.head[0].strip()[0] not in "[{":
        raise OtherFormatError(
            f"{file.name} begins with {file.head[0][:60]!r}, which is not a known format. {EXPECTED}"
        )
    if isinstance(file.json.get("images"), list):
        raise OtherFormatError(
            f"{file.name} has images, but neither 'annotations' nor 'sentences'. {EXPECTED}"
        )
    return JsonLines  # captions by image


def reader_for(data: str, images: Mapping[str, str], splits: Mapping[str, str]) -> Spec:
    """Class path and arguments of the reader for a file or folder.

    Args:
        data: a caption file, or a folder with one (for COCO: with one for each split).
        images: folders of images: for COCO by split; under `ALL` the folder for all splits. Without an entry, the
            likely folder that has the images.
        splits: the fraction of each; for COCO also the captions JSON of each split, for Flickr the list of each. Not
            needed if file names, or the data, give the splits.

    Raises:
        DataError: the data has none of the formats, or several; or an argument does not fit the format.
    """
    path = user_path(data)
    files = _caption_files(path) if os.path.isdir(path) else [caption_file(path)]
    reader = files[0].reader
    if len(files) > 1 and any(file.reader is not Coco for file in files):
        names = first_few(f"{file.path.name} ({file.reader.format})" for file in files)
        raise DataError(f"'{path}' has several caption files: {names}. Name one of them.")
    if reader is not Coco and set(images) - {ALL}:
        raise DataError(f"--images takes one folder for data in {reader.format} format.")
    if reader is Karpathy and splits:
        raise DataError(f"'{files[0].path}' has splits of its own: leave out --splits.")
    fractions = _fractions(splits, reader)
    has_files = reader is Coco and not fractions
    captions = {split: caption_file(user_path(file)) for split, file in splits.items()} if has_files else {}
    arguments = reader.arguments(files, Layout(images, splits, fractions, captions))
    return {"class_path": f"caption.data.readers.{reader.__name__}", "init_args": arguments}


def _fractions(splits: Mapping[str, str], reader: type[CheckedReader]) -> dict[str, float]:
    """The fractions that --splits gives; none if it gives files, which COCO and Flickr may have.

    Raises:
        DataError: there are fractions and files, or files for another format.
    """
    numbers = {split: number for split, given in splits.items() if (number := _number(given)) is not None}
    if len(numbers) < len(splits) and (numbers or reader not in (Coco, Flickr)):
        files = first_few(f"'{given}'" for split, given in splits.items() if split not in numbers)
        raise DataError(
            f"--splits takes fractions for data in {reader.format} format, such as train=0.8 val=0.1 test=0.1, "
            f"not {files}."
        )
    if numbers:
        check_fractions(numbers)
    return numbers


def _number(text: str) -> float | None:
    try:
        return None if os.path.lexists(text) else float(text)
    except ValueError:
        return None


def caption_file(path: Path) -> DetectedFile:
    """A file with its reader. Raises an OtherFormatError if none can read it."""
    file = CaptionText(read_text(path), f"'{path}'")
    reader = detect_format(file)
    entries = reader.entries(file, Findings())
    examples = [entry.file for entry in islice(entries, EXAMINED) if entry.file]
    if reader is JsonLines and not examples:
        raise OtherFormatError(f"{file.name} is JSON that names no files of images. {EXPECTED}")
    return DetectedFile(path, reader, examples)


def _caption_files(folder: Path) -> list[DetectedFile]:
    """All caption files directly in a folder, by name. A damaged one is an error: skipped, it would go unnoticed."""
    try:
        paths = sorted(
            path
            for path in folder.iterdir()
            if (path.suffix.lower() in SUFFIXES or path.name == "metadata.parquet")
            and path.name[0] != "."
            and not path.is_dir()
        )
    except OSError as error:
        raise DataError(f"'{folder}' cannot be read: {error.strerror}.") from None
    files = []
    for path in paths:
        with suppress(OtherFormatError):
            files.append(caption_file(path))
    for pattern, (module, rows) in METADATA.items() if not files else ():
        if tables := sorted(folder.glob(pattern)):
            join = JOIN.format(module=module, pattern=pattern, rows=rows)
            raise DataError(
                f"'{folder}' has its captions in {first_few(tables)}. Join them with one line, and give the file that "
                f"it writes: cd {shlex.quote(str(folder))} && {join}"
            )
    if not files:
        raise DataError(f"'{folder}' has no caption file in a known format. {EXPECTED}")
    return files
