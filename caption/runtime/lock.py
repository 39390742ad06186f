"""One process at a time in a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from caption.errors import UserError

LOCK = ".caption.lock"
"""The file in the folder; no other program has one of this name."""


@contextmanager
def locked(folder: Path, option: str, wait: bool = False) -> Iterator[None]:
    """Keep other processes of this package out of a folder; one process may lock it several times.

    The lock ends with the process, even if that is killed.

    Args:
        folder: it must exist.
        option: the command's option that names another folder.
        wait: for as long as another process has locked the folder; it is told on stderr.

    Raises:
        UserError: another process has locked the folder, or it cannot be written to.
    """
    lock = FileLock(folder.resolve() / LOCK, is_singleton=True)
    try:
        with suppress(Timeout):
            lock.acquire(timeout=0)
        if not lock.is_locked:
            if not wait:
                raise UserError(
                    f"another process is writing to {folder}: wait until it has ended, or choose another folder with "
                    f"{option}"
                )
            print(f"waiting for another process, which is writing to {folder}", file=sys.stderr, flush=True)
            lock.acquire()
    except OSError as error:
        raise UserError(
            f"'{folder}' cannot be written: {error.strerror}. Choose another folder with {option}."
        ) from None
    try:
        yield
    finally:
        lock.release()
