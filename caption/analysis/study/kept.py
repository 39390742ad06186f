"""Results of unfinished work, kept beside its output: the same command reads them when it runs again."""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from caption.core.errors import UserError, reported_as
from caption.core.runtime.atomic_files import MARK, creating, delete, is_own, names_beside
from caption.core.runtime.inputs import STREAM, read_input

Arrays = Mapping[Any, np.ndarray]
INTERVAL = 30.0
"""Seconds of work that a kill may lose; a stop signal loses nothing."""


class Kept:
    """Arrays by the name of the work that gave them. Used as a context, after which the files are gone, unless the
    work was stopped.

    Args:
        output: the files are beside it, each of `INTERVAL` seconds of work: page.partial.npz, page.partial-2.npz, ...
            None = nothing is kept.
    """

    def __init__(self, output: Path | None = None) -> None:
        self._path = output and output.with_suffix(".partial.npz")
        self._files: list[Path] = []
        self._loaded: dict[str, dict[str, np.ndarray]] = {}
        self._new: dict[str, np.ndarray] = {}
        self._written = time.monotonic()
        for path in takewhile(os.path.lexists, names_beside(self._path) if self._path else ()):
            if is_own(path):
                self._files.append(path)
                self._read(path)

    def __call__(self, work: str, compute: Callable[[], Arrays]) -> Arrays:
        """What was kept of some work, else what `compute` gives, which is kept.

        Args:
            work: a name that says all that the result depends on, without "/".
            compute: does the work.
        """
        if (loaded := self._loaded.pop(work, None)) is not None:
            return loaded
        arrays = compute()
        if self._path:
            self._new |= {f"{work}/{field}": array for field, array in arrays.items()}
            if time.monotonic() - self._written > INTERVAL:
                self._write()
        return arrays

    def _read(self, path: Path) -> None:
        content = io.BytesIO(read_input(path, STREAM))
        again = f"{path} cannot be read: delete it, and what it holds is computed again"
        with (
            reported_as(UserError, again, OSError, ValueError, zipfile.BadZipFile),
            np.load(content) as archive,
        ):
            for name, array in archive.items():
                work, _, field = name.partition("/")
                self._loaded.setdefault(work, {})[field] = array

    def _write(self) -> None:
        self._written = time.monotonic()
        if not self._path or not self._new:
            return
        file = io.BytesIO()
        np.savez(file, **self._new)  # type: ignore[arg-type]
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = MARK.encode()
        path = next(path for path in names_beside(self._path) if not os.path.lexists(path))
        with creating(path) as output:
            output.write(file.getvalue())
        self._files.append(path)
        self._new = {}

    def __enter__(self) -> Kept:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._write()
            return
        for path in self._files:
            delete(path)
