"""Files for results: opened with a clear error, and marked so that a later run knows that it may replace them."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from caption.errors import UserError

MARK = "caption: where the model looked"
"""In the metadata of figures (PNG, JPEG, PDF, SVG ...) and in the head of pages."""
SEARCHED = 1 << 16
"""Bytes at both ends of a file in which the mark is looked for."""
ATTENTION = {"words.npy", "weights.npy", "gates.npy", "box.npy"}
"""Members of every file of attention weights."""


class OutputError(UserError):
    """A result cannot be written to the given path."""


@contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing bytes; errors of the operating system become an OutputError."""
    try:
        with open(path, "wb") as file:
            yield file
    except OSError as error:
        raise OutputError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


def is_replaceable(path: Path) -> bool:
    """Whether a file may be written at `path`: there is none, this package wrote it, or it is a device or pipe."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return True
    except (OSError, ValueError):  # none, or one that cannot be reached, which is reported when it is written
        return True
    try:
        with path.open("rb") as file:
            head = file.read(SEARCHED)
            file.seek(max(0, os.fstat(file.fileno()).st_size - SEARCHED))
            if MARK.encode() in head + file.read(SEARCHED):
                return True
        with zipfile.ZipFile(path) as archive:
            return set(archive.namelist()) >= ATTENTION
    except Exception:  # damaged archives raise almost anything
        return False
