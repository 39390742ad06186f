"""The format of a caption file, by its content, and the reader for a file or folder.

The name of a file decides nothing but the split, where COCO and Flickr have one file for each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from caption.data.files import JsonError, load_json, numbered_lines, read_text, user_path
from caption.data.readers.captions import SPLIT_NAMES, Entry, Findings
from caption.data.readers.coco import coco_entries
from caption.data.readers.flickr import flickr_entries, read_names
from caption.data.readers.karpathy import karpathy_entries
from caption.data.readers.tables import USUAL_KEYS, csv_delimiter, csv_entries, json_entries, keyed_entry
from caption.errors import DataError, first_few
from caption.parts import Spec

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".token")
"""Of the files in a folder that are examined."""
EXAMINED = 20
"""The lines or images of a file that decide its format and the folder of its images."""
IMAGE_FOLDERS = ("images", "Images", "Flicker8k_Dataset", "flickr30k-images")
ALL = ""
"""The key of a folder that holds the images of all splits."""

ENTRY_KEYS = ("image_id", "caption", "text")
"""Keys that tell an entry from another object, beside those of its file."""
_READERS = {
    "COCO": "Coco",
    "Karpathy": "Karpathy",
    "Flickr": "Flickr",
    "CSV": "Csv",
    "JSON lines": "JsonLines",
}
_TOKENS = re.compile(r"[^\t]+#\d+\t")
_SPLIT_WORDS = {"train": ("train",), "val": ("val", "dev"), "test": ("test",)}
_EXPECTED = (
    "It may be COCO captions JSON, Karpathy's JSON, a Flickr token file, CSV with the columns image and caption, or "
    "JSON lines with the keys image and caption."
)


class OtherFormatError(DataError):
    """A sound file that does not hold captions in a known format."""


def recognised(text: str, name: str, findings: Findings) -> tuple[str, Iterator[Entry]]:
    """The format of the text of a caption file, and its entries. Damage to single lines or entries does not matter.

    Returns:
        the format, a key of `_READERS`, or "JSON object" for captions by image, which only scoring reads; the entries.

    Raises:
        OtherFormatError: it is in no known format.
        DataError: it begins like JSON, and is neither JSON nor JSON lines.
    """
    lines = [line for _, line in islice(numbered_lines(text), EXAMINED)]
    if not lines:
        raise OtherFormatError(f"{name} is empty. {_EXPECTED}")
    if '"bbox"' in text and '"caption"' not in text:  # before parsing: COCO's files of boxes are huge
        raise OtherFormatError(f"{name} holds boxes, not captions. Give the captions JSON, captions_*.json.")
    if any(map(_TOKENS.match, lines)):
        return "Flickr", flickr_entries(text, name, findings)
    if csv_delimiter(text):
        return "CSV", csv_entries(text, name, findings)
    if lines[0].strip()[0] not in "[{":
        raise OtherFormatError(
            f"{name} begins with {lines[0][:60]!r}, which is not a known format. {_EXPECTED}"
        )
    try:
        data = load_json(text)
    except JsonError as error:
        if any(map(_is_entry, map(_json_or_none, lines))):
            return "JSON lines", json_entries(text, name, findings)
        raise DataError(f"{name} is not JSON: {error}.") from None
    if isinstance(data, list) or _is_entry(data):
        entries = json_entries(data if isinstance(data, list) else [data], name, findings)
        return "JSON lines", entries
    if "annotations" in data:
        return "COCO", coco_entries(data, name, findings)
    images = data.get("images")
    if not isinstance(images, list):
        return "JSON object", _entries_by_image(data, name)
    if any("sentences" in image for image in images[:EXAMINED] if isinstance(image, dict)):
        return "Karpathy", karpathy_entries(data, name, findings)
    raise OtherFormatError(f"{name} has images, but neither 'annotations' nor 'sentences'. {_EXPECTED}")


def _json_or_none(line: str) -> Any:
    try:
        return load_json(line)
    except JsonError:
        return None


def _is_entry(data: Any) -> bool:
    return isinstance(data, dict) and any(key in data for key in (*USUAL_KEYS.file, *ENTRY_KEYS))


def _entries_by_image(data: Mapping[str, Any], name: str) -> Iterator[Entry]:
    for image, captions in data.items():
        yield keyed_entry(f"image {image[:100]} of {name}", {"image": image, "caption": captions}, USUAL_KEYS)


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
    sources = _sources(path) if os.path.isdir(path) else [_source(path)]
    (format, file, _), *others = sources
    if others and any(source.format != "COCO" for source in sources):
        names = first_few(f"{source.file.name} ({source.format})" for source in sources)
        raise DataError(f"'{path}' has several caption files: {names}. Name one of them.")
    if format != "COCO" and set(images) - {ALL}:
        raise DataError(f"--images takes one folder for data in {format} format.")
    folder = images.get(ALL) or str(_image_folder(sources[0]))
    arguments: dict[str, Any]
    fractions = _fractions(splits, format) if format != "Karpathy" else {}
    if format == "COCO" and fractions and not others and len(images) <= 1:
        arguments = {"captions": str(file), "images": folder, "fractions": fractions}
    elif format == "COCO" and fractions:
        files = first_few(f"'{source.file}'" for source in sources)
        raise DataError(
            f"--splits by fraction divides one file and one folder, and here are {files}: name one."
        )
    elif format == "COCO":
        arguments = _coco_arguments(sources, images, splits)
    elif format == "Flickr" and fractions:
        arguments = {"captions": str(file), "splits": None, "images": folder, "fractions": fractions}
    elif format == "Flickr":
        arguments = {"captions": str(file), "splits": dict(splits) or _lists_beside(file), "images": folder}
    elif format == "Karpathy":
        if splits:
            raise DataError(f"'{file}' has splits of its own: leave out --splits.")
        arguments = {"file": str(file), "images": folder}
    else:
        arguments = {"file": str(file)}
        if Path(folder) != file.parent:  # the reader's default
            arguments["images"] = folder
        arguments |= {"fractions": fractions} if fractions else {}
    return {"class_path": f"caption.data.readers.{_READERS[format]}", "init_args": arguments}


def _fractions(splits: Mapping[str, str], format: str) -> dict[str, float]:
    """The fractions that --splits gives; none if it gives files, which COCO and Flickr may have.

    Raises:
        DataError: there are fractions and files, or files for another format.
    """
    numbers = {split: number for split, given in splits.items() if (number := _number(given)) is not None}
    if len(numbers) == len(splits):
        return numbers
    if numbers or format not in ("COCO", "Flickr"):
        files = first_few(f"'{given}'" for split, given in splits.items() if split not in numbers)
        raise DataError(
            f"--splits takes fractions for data in {format} format, such as train=0.8 val=0.1 test=0.1, and not "
            f"{files}."
        )
    return {}


def _number(text: str) -> float | None:
    try:
        return None if os.path.lexists(text) else float(text)
    except ValueError:
        return None


class _Source(NamedTuple):
    format: str
    file: Path
    examples: list[str]
    """Names of some of its images."""


def _source(file: Path) -> _Source:
    """The format of a file. Raises an OtherFormatError if no reader can read it."""
    name = f"'{file}'"
    format, entries = recognised(read_text(file), name, Findings())
    examples = [entry.file for entry in islice(entries, EXAMINED) if entry.file]
    if format not in _READERS or (format == "JSON lines" and not examples):
        raise OtherFormatError(f"{name} is JSON that names no files of images. {_EXPECTED}")
    return _Source(format, file, examples)


def _sources(folder: Path) -> list[_Source]:
    """All caption files directly in a folder, by name. A damaged one is an error: skipped, it would go unnoticed."""
    try:
        files = sorted(
            file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and not file.is_dir()
        )
    except OSError as error:
        raise DataError(f"'{folder}' cannot be read: {error.strerror}.") from None
    sources = []
    for file in files:
        with suppress(OtherFormatError):
            sources.append(_source(file))
    if not sources:
        raise DataError(f"'{folder}' has no caption file in a known format. {_EXPECTED}")
    return sources


def _coco_arguments(
    sources: list[_Source], images: Mapping[str, str], splits: Mapping[str, str]
) -> dict[str, Any]:
    by_split = {split: _source(user_path(file)) for split, file in splits.items()}
    assigned = {source.file for source in by_split.values()}
    for source in sources:
        if source.file not in assigned and (not splits or len(sources) == 1):
            split = _split_in_name(source.file) or ("train" if len(sources) == 1 else None)
            if split is None or split in by_split:
                files = first_few(f"'{source.file}'" for source in (*by_split.values(), *sources))
                raise DataError(
                    f"the names of {files} do not tell which split is which: give --splits, as in "
                    f"train={source.file}."
                )
            by_split[split] = source
    ordered = {split: by_split[split] for split in SPLIT_NAMES if split in by_split}
    return {
        "captions": {split: str(source.file) for split, source in ordered.items()},
        "images": {
            split: images.get(split) or images.get(ALL) or str(_image_folder(source, split))
            for split, source in ordered.items()
        },
    }


def _split_in_name(file: Path) -> str | None:
    """The split that a file is named after; None if there is none, or two."""
    stem = file.stem.lower()
    splits = [split for split, words in _SPLIT_WORDS.items() if any(word in stem for word in words)]
    return splits[0] if len(splits) == 1 else None


def _lists_beside(tokens: Path) -> dict[str, str]:
    """Flickr's lists of images, beside the token file and named after their splits."""
    names = {entry.file for entry in flickr_entries(read_text(tokens), f"'{tokens}'", Findings())}
    lists: dict[str, list[str]] = {}
    for file in sorted(tokens.parent.glob("*.txt")):
        split = _split_in_name(file)
        if split is not None:
            with suppress(DataError):
                if names.intersection(read_names(file)):
                    lists.setdefault(split, []).append(str(file))
    if not lists or any(len(files) > 1 for files in lists.values()):
        raise DataError(
            f"there is not one list of images for each split beside '{tokens}': name them with --splits, as in "
            "train=trainImages.txt test=testImages.txt."
        )
    return {split: lists[split][0] for split in SPLIT_NAMES if split in lists}


def _image_folder(source: _Source, split: str | None = None) -> Path:
    """The likely folder that has most of the example images; the file's own if no folder has any."""
    beside = source.file.parent
    folders = [beside, *(beside / name for name in IMAGE_FOLDERS)]
    if split is not None:  # COCO's layout: annotations/captions_train2014.json, train2014/
        name = source.file.stem.removeprefix("captions_")
        folders += [beside / name, beside.parent / name, beside / split, beside.parent / "images"]
    return max(folders, key=lambda folder: sum(os.path.isfile(folder / name) for name in source.examples))
