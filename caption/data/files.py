"""Reading text files that users name: UTF-8, lines, JSON. Every error names the file and the remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caption.errors import DataError


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a UTF-8 file, with or without byte order mark. `~` is the home folder; line ends are kept.

    Raises:
        DataError: the file is missing, a folder, unreadable, or not UTF-8.
    """
    path = Path(path).expanduser()
    try:
        return decoded(path.read_bytes(), f"'{path}'")
    except FileNotFoundError:
        raise DataError(f"'{path}' does not exist. Check the path.") from None
    except IsADirectoryError:
        raise DataError(f"'{path}' is a folder. Name the file in it.") from None
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}.") from None


def decoded(data: bytes, name: str) -> str:
    """UTF-8 text, with or without byte order mark. Raises a DataError, with the file's name, for other data."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from None


def text_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """The non-blank lines of a UTF-8 file, without line ends, each with its number, counted from 1.

    Raises:
        DataError: see `read_text`.
    """
    # splitlines() would also split at characters such as U+2028, which may occur inside a caption.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        DataError: the file is unreadable, is not JSON (the message gives the line), or holds no object.
    """
    data = parsed(read_text(path), f"'{path}'")
    if not isinstance(data, dict):
        raise DataError(f"'{path}' holds a JSON {type(data).__name__}, not an object. Is it the right file?")
    return data


def parsed(text: str, name: str) -> Any:
    """The content of a JSON text. Raises a DataError, with the file's name and the line, for other text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{name} is not JSON: {error.msg} in line {error.lineno}. Download or write it again."
        ) from None


def entries(data: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """`data[key]`, which must be a list of objects.

    Raises:
        DataError: it is missing or has another type; `where` names the file or the entry.
    """
    found = data.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise DataError(f"{where} has no list of objects called '{key}'. Is it the right file?")
    return found


def field(entry: dict[str, Any], key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """`entry[key]`, which must have the type `kind`.

    Raises:
        DataError: it is missing or has another type; `where` names the entry.
    """
    value = entry.get(key)
    if not isinstance(value, kind):
        raise DataError(f"{where} has no valid '{key}' (found {value!r}). Correct it, or use another file.")
    return value
