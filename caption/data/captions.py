"""Images with their captions, by split: the record every reader returns and the checks every reader makes."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.errors import DataError

if TYPE_CHECKING:
    from caption.analysis.grounding import Boxes

SPLIT_NAMES = ("train", "val", "test")
NAMED = 3  # culprits an error message names before it counts the rest


@dataclass(frozen=True)
class CaptionedImage:
    """One image and what people wrote under it."""

    id: int | str
    """What results and features are filed under; unique within its split."""
    path: Path
    """The image file; it existed when the captions were read."""
    captions: tuple[str, ...]
    """At least one, as written (case and punctuation kept), without spaces at the ends."""


Splits = dict[str, list[CaptionedImage]]
"""Keys among "train", "val" and "test"; no list is empty."""


class CaptionReader(ABC):
    """Reads one kind of caption file. A subclass's arguments are what a configuration file may set."""

    @abstractmethod
    def read(self) -> Splits:
        """Read and check everything, before any training starts.

        Raises:
            DataError: a file is missing or malformed, images are missing, splits overlap or are empty.
        """

    def boxes(self, split: str) -> Mapping[int | str, Boxes] | None:
        """Where the objects of each image are, by name, in its pixels; None where the data does not say."""
        return None


def checked(splits: Splits, source: str) -> Splits:
    """`splits`, once nothing is wrong with them.

    Args:
        splits: what a reader read.
        source: the caption file or files, for the message.

    Raises:
        DataError: no split or an empty one, an image without captions or with a blank one, an image in two
            splits or twice in one, two images with one id, an image file that does not exist.
    """
    if not splits:
        where = f" in {source}" if source else ""
        raise DataError(f"there is no split to read{where}: give at least one of {', '.join(SPLIT_NAMES)}.")
    check_split_names(splits)
    for split, images in splits.items():
        if not images:
            raise DataError(f"split '{split}' of {source} is empty: give it images or leave it out.")
        _check_captions(split, images, source)
        _check_ids(split, images, source)
    _check_overlap(splits, source)
    _check_files([image.path for images in splits.values() for image in images], source)
    return splits


def check_split_names(names: Iterable[str]) -> None:
    """Raise a DataError for a split other than train, val and test."""
    for name in names:
        if name not in SPLIT_NAMES:
            raise DataError(f"'{name}' is no split: the splits are called {', '.join(SPLIT_NAMES)}.")


def _check_captions(split: str, images: list[CaptionedImage], source: str) -> None:
    bare = [str(image.id) for image in images if not image.captions]
    if bare:
        raise DataError(
            f"{len(bare)} of the {len(images)} images of split '{split}' have no caption in {source}: "
            f"{enumerated(bare)}. Add captions or take the images out of the split."
        )
    blank = [str(image.id) for image in images if not all(image.captions)]
    if blank:
        raise DataError(
            f"{len(blank)} images of split '{split}' have a blank caption in {source}: {enumerated(blank)}. "
            f"Write the captions or delete the blank ones."
        )


def _check_ids(split: str, images: list[CaptionedImage], source: str) -> None:
    seen: set[int | str] = set()
    for image in images:
        if image.id in seen:
            raise DataError(
                f"image {image.id!r} stands twice in split '{split}' of {source}: keep one entry."
            )
        seen.add(image.id)


def _check_overlap(splits: Splits, source: str) -> None:
    """An image is its file: ids may well start from 0 in every split."""
    real: dict[str, str] = {}
    owner: dict[tuple[str, str], str] = {}
    for split, images in splits.items():
        for image in images:
            folder, name = os.path.split(image.path)
            if folder not in real:
                real[folder] = os.path.realpath(folder)
            other = owner.get((real[folder], name))
            if other == split:
                raise DataError(
                    f"'{image.path}' stands twice in split '{split}' of {source}: keep one entry."
                )
            if other is not None:
                raise DataError(
                    f"'{image.path}' is in the splits '{other}' and '{split}' of {source}: "
                    f"keep it in one of them, or the scores are worth nothing."
                )
            owner[real[folder], name] = split


def _check_files(paths: Iterable[Path], source: str) -> None:
    """Every image exists. One listing per folder: a look at each file takes minutes on a network disk."""
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        by_folder.setdefault(folder, []).append(name)
    missing = [
        os.path.join(folder, name)
        for folder, names in by_folder.items()
        for name in _absent(names, folder, source)
    ]
    if missing:
        total = sum(len(names) for names in by_folder.values())
        raise DataError(
            f"{len(missing)} of the {total} images named in {source} do not exist: {enumerated(missing)}. "
            f"Get them, or take them out of the captions."
        )


def _absent(names: list[str], folder: str, source: str) -> Iterator[str]:
    try:
        with os.scandir(folder or ".") as entries:
            present = {entry.name for entry in entries if entry.is_file()}
    except OSError as error:
        raise DataError(
            f"image folder '{folder or '.'}' cannot be read ({error.strerror}), but {source} names "
            f"{len(names)} images in it. Check the path."
        ) from None
    return (name for name in names if name not in present)


def enumerated(culprits: list[str]) -> str:
    """The first few, and how many more: "a, b, c and 12 more"."""
    shown = ", ".join(culprits[:NAMED])
    return shown if len(culprits) <= NAMED else f"{shown} and {len(culprits) - NAMED} more"


def located(path: str) -> Path:
    """A path as a user writes it: `~` is the home folder, anything relative starts at the current folder."""
    return Path(path).expanduser()


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without byte order mark; line ends are left as they are.

    Raises:
        DataError: missing, a folder, unreadable, or no UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"'{path}' does not exist. Check the path.") from None
    except IsADirectoryError:
        raise DataError(f"'{path}' is a folder. Name the file in it.") from None
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is no UTF-8 text (byte {error.start}). Save it as UTF-8.") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        DataError: unreadable, no JSON (with the line), or JSON that is no object.
    """
    try:
        data = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(
            f"'{path}' is no JSON: {error.msg} in line {error.lineno}. Get the file anew."
        ) from None
    if not isinstance(data, dict):
        raise DataError(f"'{path}' holds a JSON {type(data).__name__}, not an object. Is it the right file?")
    return data


def entries(data: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """`data[key]`, which must be a list of objects.

    Raises:
        DataError: it is missing or something else; `where` names the file or the entry.
    """
    found = data.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise DataError(f"{where} has no list of objects called '{key}'. Is it the right file?")
    return found


def field(entry: dict[str, Any], key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """`entry[key]`, which must be of type `kind`.

    Raises:
        DataError: it is missing or something else; `where` names the entry.
    """
    value = entry.get(key)
    if not isinstance(value, kind):
        raise DataError(
            f"{where} has no valid '{key}' (found {value!r}). Correct it, or is it the wrong file?"
        )
    return value
