"""Caption files, read for scoring: JSON of COCO, of Karpathy, or by image; JSON lines; CSV; Flickr's token files.

The content of a file decides its format. The images need not exist.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from caption.data.files import JsonError, decoded, load_json, read_text, shortened
from caption.data.readers.captions import MAX_CHARACTERS, too_long
from caption.data.readers.recognise import CAPTION_KEYS, IMAGE_KEYS, caption_format
from caption.data.readers.tables import DELIMITERS, CsvRows, columns_of
from caption.errors import DataError, first_few
from caption.metrics.score import Id

STDIN = "-"
_FLICKR = re.compile(r"(\S+)#\d+\t(.*)")  # NAME.jpg#0<tab>caption


@dataclass
class CaptionFile:
    """The captions of one file."""

    name: str
    """The path as the user gave it, in quotes; or "standard input"."""
    captions: dict[Id, list[str]]
    """All captions of each image, in the order of the file."""
    files: dict[str, Id] = field(default_factory=dict)
    """The image by the name of its file, as far as the caption file tells."""


def read_captions(path: str, split: str | None = None) -> CaptionFile:
    """Read a file of captions, references or candidates alike.

    Args:
        path: captions or results JSON of COCO, Karpathy's JSON, a JSON object of captions by image, JSON lines or
            CSV with `image` (or `image_id`) and `caption` (or `text`) in every entry, a token file of Flickr8k or
            Flickr30k; "-" is standard input.
        split: keep the entries whose `split` is this one; for files that have splits.

    Raises:
        DataError: the file is missing, empty or in none of these formats, or an entry is incomplete.
    """
    name = "standard input" if path == STDIN else f"'{path}'"
    if path == STDIN and sys.stdin is None:
        raise DataError("standard input is closed: give a file.")
    text = decoded(sys.stdin.buffer.read(), name) if path == STDIN else read_text(path)
    if not text.strip():
        raise DataError(f"{name} is empty: give captions as JSON, JSON lines or CSV.")
    file = CaptionFile(name, {})
    try:
        format, data = caption_format(text)
    except JsonError as error:
        raise DataError(f"{name} is not JSON: {error}.") from None
    entries: Iterator[Entry]
    if format == "COCO":
        entries = _coco(data, file)
    elif format == "Karpathy":
        entries = _karpathy(data["images"], file)
    elif format == "Flickr":
        entries = _flickr(text, name)
    elif format == "CSV":
        entries = _csv(text, name)
    elif format == "JSON object":
        entries = ((f"image {image[:100]}", image, found, None) for image, found in data.items())
    else:
        entries = _keyed(
            _json_lines(text, name) if format == "JSON lines" else _numbered("entry", data), name
        )
    for where, image, found, entry_split in entries:
        if not isinstance(image, (int, str)) or isinstance(image, bool) or image == "":
            raise DataError(f"{where} of {name} names no image: give it 'image_id' or 'image'.")
        texts = [found] if isinstance(found, str) else found
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise DataError(f"{where} of {name} has no caption: give it a text as 'caption'.")
        if long := [text for text in texts if len(text) > MAX_CHARACTERS]:
            raise DataError(f"{where} of {name} has {too_long(long[0])}")
        if split is None or entry_split == split:
            file.captions.setdefault(image, []).extend(texts)
    if not file.captions:
        of_split = f" of split '{split}'" if split else ""
        raise DataError(f"{name} holds no captions{of_split}. Is it the right file?")
    return file


Entry = tuple[str, Any, Any, Any]
"""Where it stands in the file; its image; its caption or captions; its split. The types are not yet checked."""


def _coco(data: Mapping[str, Any], file: CaptionFile) -> Iterator[Entry]:
    """The annotations; notes the file names of the images in `file`."""
    images, annotations = data.get("images") or [], data["annotations"]
    if not isinstance(images, list) or not all(isinstance(image, Mapping) for image in images):
        raise DataError(f"'images' of {file.name} is not a list of objects. Is it the right file?")
    if not isinstance(annotations, list):
        raise DataError(f"'annotations' of {file.name} is not a list. Is it the right file?")
    for number, image in enumerate(images, 1):
        if {"file_name", "id"} <= set(image):
            if not (isinstance(image["file_name"], str) and isinstance(image["id"], (int, str))):
                raise DataError(
                    f"image {number} of {file.name} has 'file_name' {shortened(image['file_name'])} and 'id' "
                    f"{shortened(image['id'])}: the first must be a text, the second a number or a text."
                )
            file.files[image["file_name"]] = image["id"]
    return _keyed(_numbered("annotation", annotations), file.name)


def _numbered(what: str, entries: list[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{what} {number}", entry) for number, entry in enumerate(entries, 1))


def _json_lines(text: str, name: str) -> Iterator[tuple[str, Any]]:
    # splitlines() would also split at characters such as U+2028, which may occur inside a caption.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", load_json(line)
            except JsonError as error:
                raise DataError(f"line {number} of {name} is not JSON: {error.fault}.") from None


def _karpathy(images: list[Any], file: CaptionFile) -> Iterator[Entry]:
    for where, image in _numbered("image", images):
        try:
            filename, texts = image["filename"], [sentence["raw"] for sentence in image["sentences"]]
        except (TypeError, KeyError):
            raise DataError(f"{where} of {file.name} lacks 'filename' or 'sentences' with 'raw'.") from None
        if "cocoid" in image:
            file.files[str(image["cocoid"])] = filename
        yield where, filename, texts, image.get("split")


def _flickr(text: str, name: str) -> Iterator[Entry]:
    for number, line in enumerate(text.split("\n"), 1):
        match = _FLICKR.fullmatch(line.rstrip("\r"))
        if match:
            yield f"line {number}", match[1], match[2], None
        elif line.strip():
            raise DataError(f"line {number} of {name} is not 'NAME#NUMBER<tab>caption'.")


def _csv(text: str, name: str) -> Iterator[Entry]:
    keys = {*IMAGE_KEYS, *CAPTION_KEYS}
    delimiter = max(DELIMITERS, key=lambda each: len(keys.intersection(columns_of(text, each))))
    rows = CsvRows(text, delimiter, name)
    if not (keys.intersection(IMAGE_KEYS, rows.columns) and keys.intersection(CAPTION_KEYS, rows.columns)):
        raise DataError(
            f"{name} is not JSON, and as CSV it lacks a column: its first line must name 'image' and 'caption', "
            f"but it names {first_few(rows.columns) or 'nothing'}."
        )
    twice = [column for column in rows.columns if column in keys and rows.columns.count(column) > 1]
    if twice:
        raise DataError(f"{name} has two columns '{twice[0]}': rename one.")
    return _keyed(((f"line {line}", row) for line, row in rows), name)


def _keyed(entries: Iterable[tuple[str, Any]], name: str) -> Iterator[Entry]:
    """Entries from objects that name their image and its caption by key."""
    for where, entry in entries:
        if not isinstance(entry, Mapping):
            raise DataError(f"{where} of {name} is not an object with an image and a caption.")
        image, found = (
            next((entry[key] for key in keys if key in entry), None) for keys in (IMAGE_KEYS, CAPTION_KEYS)
        )
        yield where, image, found, entry.get("split")


def match_images(candidates: CaptionFile, references: CaptionFile) -> dict[Id, str]:
    """The one caption of each image, under the names that the references give to the images.

    A number and its digits are the same name. A file may be named with or without folder and suffix.

    Raises:
        DataError: an image has several captions.
    """
    several = [image for image, texts in candidates.captions.items() if len(texts) > 1]
    if several:
        raise DataError(
            f"{len(several)} images have several captions in {candidates.name}: {first_few(several)}. "
            f"Keep one caption for each image."
        )
    names = _names(references)
    found: dict[Id, str] = {}
    for image, texts in candidates.captions.items():
        known = next((names[name] for name in _spellings(image) if name in names), image)
        if known in found:
            raise DataError(f"{candidates.name} has two captions for image {known}: keep one of them.")
        found[known] = texts[0] if texts else ""
    return found


def _names(references: CaptionFile) -> dict[str, Id]:
    """Every name that means exactly one image. An image's own name takes precedence over those derived from it."""
    meant: dict[str, set[Id]] = {}
    for file, image in (*references.files.items(), *((image, image) for image in references.captions)):
        for name in _spellings(file):
            meant.setdefault(name, set()).add(image)
    clear = {name: next(iter(images)) for name, images in meant.items() if len(images) == 1}
    return clear | {str(image): image for image in references.captions}


def _spellings(image: Id) -> list[str]:
    """The name as it is, without folder, and without suffix."""
    path = PurePath(str(image))
    return list(dict.fromkeys([str(image), path.name, path.stem]))
