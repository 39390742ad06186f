"""Images with their captions, by split: the record every reader returns, and what readers of files share."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.errors import DataError

if TYPE_CHECKING:
    from caption.analysis.grounding import Boxes
    from caption.data.readers.findings import Findings

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

    def survey(self, findings: Findings) -> Splits:
        """Read what can be read, with its faults reported to `findings`; for `caption check`.

        A reader that cannot go on behind a fault raises it, as `read` does. `CheckedReader` goes on.

        Raises:
            DataError: nothing can be read.
        """
        return self.read()

    def boxes(self, split: str) -> Mapping[int | str, Boxes] | None:
        """Where the objects of each image are, by name, in its pixels; None where the data does not say."""
        return None


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


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file that are not blank, with their numbers from 1, without line ends.

    Raises:
        DataError: see `read_text`.
    """
    # Not splitlines(): it also cuts at characters such as U+2028, which may stand inside a caption.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


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
