"""Caption files by their content: the format of a file, and the reader for a file or folder.

The name of a file decides nothing but the split, where COCO and Flickr have one file for each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from caption.data.files import JsonError, load_json, read_text, text_lines, user_path
from caption.data.readers.captions import SPLIT_NAMES, Findings
from caption.data.readers.flickr import read_names
from caption.data.readers.tables import Csv
from caption.errors import DataError, first_few
from caption.parts import Spec

Format = Literal["COCO", "Karpathy", "Flickr", "CSV", "JSON lines", "JSON list", "JSON object"]

IMAGE_KEYS = ("image_id", "image", "file_name", "filename", "id")
"""The keys and columns under which captions name their image, in order of preference."""
CAPTION_KEYS = ("caption", "text", "captions", "sentences")
"""Those of the caption or captions."""

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".token")
"""Of the files in a folder that are examined."""
EXAMINED = 20
"""The lines or images of a file that decide its format and the folder of its images."""
IMAGE_FOLDERS = ("images", "Images", "Flicker8k_Dataset", "flickr30k-images")
ALL = ""
"""The key of a folder that holds the images of all splits."""

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


def caption_format(text: str) -> tuple[Format, Any]:
    """The format of a file of captions. A damaged line or entry does not matter.

    Args:
        text: the content of the file; not blank.

    Returns:
        the format, and the content if it is JSON: the whole, or for "JSON lines" the first sound entries. "COCO" is any
        object with annotations, "Karpathy" any other one with a list of images. "CSV" is all that is nothing else.

    Raises:
        JsonError: it begins like JSON, and is neither JSON nor JSON lines.
    """
    lines = list(islice(filter(None, map(str.strip, text.split("\n"))), EXAMINED))
    if any(_TOKENS.match(line) for line in lines):
        return "Flickr", None
    if lines[0][0] not in "[{":
        return "CSV", None
    try:
        data = load_json(text)
    except JsonError:
        if sound := _json_entries(lines):
            return "JSON lines", sound
        header = {cell.strip().casefold() for cell in re.split(r"[,;\t|]", lines[0][:1000])}
        if header.intersection(IMAGE_KEYS) and header.intersection(CAPTION_KEYS):
            return "CSV", None
        raise
    if isinstance(data, list):
        return "JSON list", data
    if "annotations" in data:
        return "COCO", data
    if isinstance(data.get("images"), list):
        return "Karpathy", data
    if _is_entry(data):
        return ("JSON lines" if len(lines) == 1 else "JSON list"), [data]
    return "JSON object", data


def _json_entries(lines: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for line in lines:
        with suppress(JsonError):
            if _is_entry(entry := load_json(line)):
                found.append(entry)
    return found


def _is_entry(data: Any) -> bool:
    """Whether a JSON value is an entry of JSON lines, sound enough to tell so."""
    return isinstance(data, dict) and any(key in data for key in ("image", "image_id", "caption", "text"))


@dataclass
class CaptionSource:
    """A caption file of a known format."""

    format: Format
    file: Path
    examples: list[str]
    """Names of some of its images."""


def recognised(file: Path) -> CaptionSource:
    """The format of a caption file that a reader of this package can read.

    Raises:
        OtherFormatError: it has none of these formats.
        DataError: it cannot be read, or is damaged as a whole.
    """
    text = read_text(file)
    if not text.strip():
        raise OtherFormatError(f"'{file}' is empty. {_EXPECTED}")
    if '"bbox"' in text and '"caption"' not in text:  # before parsing: COCO's files of boxes are huge
        raise OtherFormatError(
            f"'{file}' holds boxes, not captions. Give the captions JSON, captions_*.json."
        )
    try:
        format, data = caption_format(text)
    except JsonError as error:
        raise DataError(f"'{file}' is not JSON: {error}.") from None
    images = data.get("images") if isinstance(data, dict) else data
    some = (
        [entry for entry in images[:EXAMINED] if isinstance(entry, dict)] if isinstance(images, list) else []
    )
    if format == "Flickr":
        lines = (line for _, line in text_lines(file) if _TOKENS.match(line))
        return CaptionSource(format, file, [_token_image(line) for line in islice(lines, EXAMINED)])
    if format == "CSV":
        try:
            rows = list(islice(Csv(str(file)).rows(file, Findings()), EXAMINED))
        except DataError as error:
            raise OtherFormatError(f"{error} {_EXPECTED}") from None
        return CaptionSource(format, file, [row.image for row in rows])
    if format == "JSON lines" and any("image" in entry for entry in some):
        return CaptionSource(format, file, [str(entry.get("image")) for entry in some])
    if format == "COCO" and isinstance(data["annotations"], list) and isinstance(images, list):
        return CaptionSource(format, file, [str(entry.get("file_name")) for entry in some])
    if format == "Karpathy":
        if any("sentences" in entry for entry in some):
            names = [f"{entry.get('filepath', '')}/{entry.get('filename')}".lstrip("/") for entry in some]
            return CaptionSource(format, file, names)
        raise OtherFormatError(f"'{file}' has images, but neither 'annotations' nor 'sentences'. {_EXPECTED}")
    kind = "a JSON list" if format == "JSON list" else "JSON of another kind"
    raise OtherFormatError(f"'{file}' is {kind}. {_EXPECTED}")


def reader_for(data: str, images: Mapping[str, str], splits: Mapping[str, str]) -> Spec:
    """Class path and arguments of the reader for a file or folder.

    Args:
        data: a caption file, or a folder with one (for COCO: with one for each split).
        images: folders of images: for COCO by split; under `ALL` the folder for all splits. Without an entry, the
            likely folder that has the images.
        splits: for COCO the captions JSON of each split, for Flickr the list of each, for CSV and JSON lines the
            fraction of each. Not needed if file names, or the data, give the splits.

    Raises:
        DataError: the data has none of the formats, or several; or an argument does not fit the format.
    """
    path = user_path(data)
    sources = _recognised_in(path) if os.path.isdir(path) else [recognised(path)]
    source, *others = sources
    if others and any(each.format != "COCO" for each in sources):
        names = first_few(f"{each.file.name} ({each.format})" for each in sources)
        raise DataError(f"'{path}' has several caption files: {names}. Name one of them.")
    if source.format != "COCO" and set(images) - {ALL}:
        raise DataError(f"--images takes one folder for data in {source.format} format.")
    if source.format == "COCO":
        arguments = _coco_arguments(sources, images, splits)
    else:
        arguments = {"file": str(source.file), "images": images.get(ALL) or str(_image_folder(source))}
        if source.format == "Flickr":
            arguments["captions"] = arguments.pop("file")
            arguments["splits"] = dict(splits) or _lists_beside(source.file)
        elif source.format == "Karpathy":
            if splits:
                raise DataError(f"'{source.file}' has splits of its own: leave out --splits.")
        else:
            if Path(arguments["images"]) == source.file.parent:  # the reader's default
                del arguments["images"]
            try:
                fractions = {split: float(fraction) for split, fraction in splits.items()}
            except ValueError:
                raise DataError(
                    f"--splits takes fractions for data in {source.format} format, such as train=0.8 val=0.1 test=0.1."
                ) from None
            arguments |= {"fractions": fractions} if fractions else {}
    return {"class_path": f"caption.data.readers.{_READERS[source.format]}", "init_args": arguments}


def _recognised_in(folder: Path) -> list[CaptionSource]:
    """All caption files directly in a folder, by name. A damaged one is an error: skipped, it would go unnoticed."""
    try:
        files = sorted(
            file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and os.path.isfile(file)
        )
    except OSError as error:
        raise DataError(f"'{folder}' cannot be read: {error.strerror}.") from None
    found = []
    for file in files:
        with suppress(OtherFormatError):
            found.append(recognised(file))
    if not found:
        raise DataError(f"'{folder}' has no caption file in a known format. {_EXPECTED}")
    return found


def _coco_arguments(
    sources: list[CaptionSource], images: Mapping[str, str], splits: Mapping[str, str]
) -> dict[str, Any]:
    by_split = {split: recognised(user_path(file)) for split, file in splits.items()}
    named = {source.file for source in by_split.values()}
    for source in sources:
        if source.file not in named and (not splits or len(sources) == 1):
            split = _split_in_name(source.file) or ("train" if len(sources) == 1 else None)
            if split is None or split in by_split:
                files = first_few(f"'{each.file}'" for each in (*by_split.values(), *sources))
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
    found = [split for split, words in _SPLIT_WORDS.items() if any(word in stem for word in words)]
    return found[0] if len(found) == 1 else None


def _lists_beside(tokens: Path) -> dict[str, str]:
    """Flickr's lists of images, beside the token file and named after their splits."""
    names = {_token_image(line) for _, line in text_lines(tokens)}
    found: dict[str, list[str]] = {}
    for file in sorted(tokens.parent.glob("*.txt")):
        split = _split_in_name(file)
        if split is not None:
            with suppress(DataError):
                if names.intersection(read_names(file)):
                    found.setdefault(split, []).append(str(file))
    if not found or any(len(files) > 1 for files in found.values()):
        raise DataError(
            f"there is not one list of images for each split beside '{tokens}': name them with --splits, as in "
            "train=trainImages.txt test=testImages.txt."
        )
    return {split: found[split][0] for split in SPLIT_NAMES if split in found}


def _token_image(line: str) -> str:
    return line.partition("\t")[0].rpartition("#")[0]


def _image_folder(source: CaptionSource, split: str | None = None) -> Path:
    """The likely folder that has most of the example images; the file's own if no folder has any."""
    beside = source.file.parent
    folders = [beside, *(beside / name for name in IMAGE_FOLDERS)]
    if split is not None:  # COCO's layout: annotations/captions_train2014.json, train2014/
        name = source.file.stem.removeprefix("captions_")
        folders += [beside / name, beside.parent / name, beside / split, beside.parent / "images"]
    return max(folders, key=lambda folder: sum(os.path.isfile(folder / name) for name in source.examples))
