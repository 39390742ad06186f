"""Captions as people keep them: JSON of COCO, of Karpathy, or by image; JSON lines; CSV; Flickr's token files.

What a file is shows in its content. Read for scoring only: no image needs to exist.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from caption.errors import DataError
from caption.metrics.corpus import named
from caption.metrics.score import Id

STDIN = "-"
_FLICKR = re.compile(r"(\S+)#\d+\t(.*)")  # NAME.jpg#0<tab>caption
_IMAGE = ("image_id", "image", "file_name", "filename", "id")
_CAPTION = ("caption", "text", "captions", "sentences")


@dataclass
class CaptionFile:
    """The captions of one file."""

    name: str
    """What the user called it."""
    captions: dict[Id, list[str]]
    """All captions of each image, in the order of the file."""
    files: dict[str, Id] = field(default_factory=dict)
    """The image by its file's name, where the file tells."""


def read_captions(path: str, split: str | None = None) -> CaptionFile:
    """Read a file of captions, references or candidates alike.

    Args:
        path: captions or results JSON of COCO, Karpathy's JSON, a JSON object of captions by image, JSON lines or
            CSV with `image` (or `image_id`) and `caption` (or `text`) in every entry, a token file of Flickr8k or
            Flickr30k; "-" is standard input.
        split: keep the entries whose `split` is this one; for files that have splits.

    Raises:
        DataError: missing, empty, none of these formats, or an entry that is incomplete.
    """
    name = "standard input" if path == STDIN else f"'{path}'"
    text = _text(path, name)
    if not text.strip():
        raise DataError(f"{name} is empty: give captions as JSON, JSON lines or CSV.")
    captions: dict[Id, list[str]] = {}
    files: dict[str, Id] = {}
    if text.lstrip()[0] in "[{":
        entries = _json(text, name, files)
    elif _FLICKR.match(text):
        entries = _flickr(text, name)
    else:
        entries = _csv(text, name)
    for image, texts, entry_split in entries:
        if split is None or entry_split == split:
            captions.setdefault(image, []).extend(texts)
    if not captions:
        of_split = f" of split '{split}'" if split else ""
        raise DataError(f"{name} holds no captions{of_split}. Is it the right file?")
    return CaptionFile(name, captions, files)


Entry = tuple[Id, list[str], Any]
"""Image, its captions, its split."""


def _text(path: str, name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == STDIN else Path(path).expanduser().read_bytes()
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{name} does not exist. Check the path.") from None
    except IsADirectoryError:
        raise DataError(f"{name} is a folder. Name the file in it.") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is no UTF-8 text (byte {error.start}). Save it as UTF-8.") from None


def _json(text: str, name: str, files: dict[str, Id]) -> Iterator[Entry]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not lines[0].rstrip().endswith("}"):
            raise DataError(f"{name} is no JSON: {error.msg} in line {error.lineno}.") from None
        return _entries(_json_lines(text, name), name)
    if isinstance(data, list):
        return _entries(((f"entry {number}", entry) for number, entry in enumerate(data, 1)), name)
    if "annotations" in data:
        files.update(_file_names(data, name))
        annotations = data["annotations"]
        if not isinstance(annotations, list):
            raise DataError(f"'annotations' of {name} is no list. Is it the right file?")
        return _entries(
            ((f"annotation {number}", entry) for number, entry in enumerate(annotations, 1)), name
        )
    if isinstance(data.get("images"), list):
        return _karpathy(data["images"], name, files)
    if "caption" in data or "text" in data:  # JSON lines of one line
        return _entries([("line 1", data)], name)
    return _by_image(data, name)


def _json_lines(text: str, name: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"line {number} of {name} is no JSON: {error.msg}.") from None


def _karpathy(images: list[Any], name: str, files: dict[str, Id]) -> Iterator[Entry]:
    for number, image in enumerate(images, 1):
        try:
            file, texts = image["filename"], [sentence["raw"] for sentence in image["sentences"]]
        except (TypeError, KeyError):
            raise DataError(f"image {number} of {name} lacks 'filename' or 'sentences' with 'raw'.") from None
        if "cocoid" in image:
            files[str(image["cocoid"])] = file
        yield file, _texts(texts, f"image {number} of {name}"), image.get("split")


def _flickr(text: str, name: str) -> Iterator[Entry]:
    for number, line in enumerate(text.splitlines(), 1):
        match = _FLICKR.fullmatch(line)
        if match:
            yield match[1], [match[2]], None
        elif line.strip():
            raise DataError(f"line {number} of {name} is not 'NAME#NUMBER<tab>caption' like the first one.")


def _csv(text: str, name: str) -> Iterator[Entry]:
    header = text.splitlines()[0]
    table = csv.DictReader(io.StringIO(text), delimiter="\t" if "\t" in header else ",")
    columns = [column.strip() for column in table.fieldnames or ()]
    table.fieldnames = columns
    if not any(key in columns for key in _IMAGE) or not any(key in columns for key in _CAPTION):
        raise DataError(
            f"{name} is no JSON, and as CSV it lacks a column: its first line must name 'image' and 'caption', "
            f"but it names {named(columns)}."
        )
    return _entries(((f"line {table.line_num}", row) for row in table), name)


def _entries(entries: Iterable[tuple[str, Any]], name: str) -> Iterator[Entry]:
    """Entries that name their image and its caption."""
    for where, entry in entries:
        if not isinstance(entry, Mapping):
            raise DataError(f"{where} of {name} is no object with an image and a caption.")
        image = next((entry[key] for key in _IMAGE if key in entry), None)
        if not isinstance(image, (int, str)) or isinstance(image, bool) or image == "":
            raise DataError(f"{where} of {name} names no image: give it 'image_id' or 'image'.")
        found = next((entry[key] for key in _CAPTION if key in entry), None)
        yield image, _texts(found, f"{where} of {name}"), entry.get("split")


def _by_image(data: Mapping[str, Any], name: str) -> Iterator[Entry]:
    for image, found in data.items():
        yield image, _texts(found, f"image {image} of {name}"), None


def _texts(found: Any, where: str) -> list[str]:
    texts = [found] if isinstance(found, str) else found
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"{where} has no caption: give it a text as 'caption'.")
    return texts


def _file_names(data: Mapping[str, Any], name: str) -> Iterator[tuple[str, Id]]:
    images = data.get("images") or []
    if not isinstance(images, list) or not all(isinstance(image, Mapping) for image in images):
        raise DataError(f"'images' of {name} is no list of objects. Is it the right file?")
    return ((image["file_name"], image["id"]) for image in images if "file_name" in image and "id" in image)


def matched(candidates: CaptionFile, references: CaptionFile) -> dict[Id, str]:
    """The one caption of each image, under the references' names for the images.

    A number and its digits are one name; a file may be named with or without folder and suffix.

    Raises:
        DataError: an image with several captions, or without one.
    """
    several = [image for image, texts in candidates.captions.items() if len(texts) > 1]
    if several:
        raise DataError(
            f"{len(several)} images have several captions in {candidates.name}: {named(several)}. "
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
    """Every name that means one image and no other. An image's own name goes before those made from it."""
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
