"""Files that are there whole or not at all, whatever stops the process that writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from caption.errors import UserError


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when it is complete and on the disk.

    It is written in the same folder, because a rename between file systems is a copy, which can be cut short. If
    writing fails, the file of that name is unchanged, and the incomplete one is removed.

    Raises:
        UserError: it cannot be written, for instance because the disk is full.
    """
    path = Path(path)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if (reason := _reason(error)) is None:
            raise
        kept = (
            f"; the file of that name is unchanged and {path.stat().st_size} bytes long"
            if path.exists()
            else ""
        )
        raise UserError(f"{path} could not be written: {reason}{kept}") from error


def _sync_folder(folder: Path) -> None:
    """Write a rename to the disk, where the operating system can (not on Windows)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reason(error: BaseException | None) -> str | None:
    """What the operating system said; torch.save hides it behind an error of its own."""
    while error is not None:
        if isinstance(error, OSError):
            return error.strerror
        error = error.__cause__ or error.__context__
    return None
