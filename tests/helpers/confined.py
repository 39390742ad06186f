"""Running code that must write nothing, or nothing outside a folder, start nothing, and leave a folder unread; anything
else is refused before it happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHANGES = {
    *("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"),
    *("shutil.rmtree", "shutil.move", "os.utime", "os.chown"),
}
"""Python's events of what changes the file system, beside `open`."""
PROCESSES = (
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "os.fork", "socket.connect"),
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
HARMLESS = ("/dev/", "/proc/")


class _Guard:
    def __init__(self) -> None:
        self.armed = False
        self.folder: Path | None = None
        self.secret: Path | None = None
        self.escapes: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        names = [argument for argument in arguments if isinstance(argument, (str, bytes))]
        if event == "open":
            path, mode, flags = arguments
            writes = (isinstance(flags, int) and flags & WRITING) or set(mode or "") & set("wax+")
            paths = [path] if isinstance(path, (str, bytes)) and (writes or self._is_secret(path)) else []
        elif event == "os.listdir":
            paths = [path for path in names if self._is_secret(path)]
        elif event in CHANGES:
            paths = names
        else:
            paths = [f"/{event}"] if event in PROCESSES else []
        for path in map(os.fsdecode, paths):
            place = os.path.realpath(path)
            unchanged = event == "os.mkdir" and os.path.isdir(place)  # exist_ok
            if unchanged or place.startswith(HARMLESS) or "__pycache__" in place:
                continue
            if self.folder is None or not Path(place).is_relative_to(self.folder) or self._is_secret(path):
                self.escapes.append(f"{event}: {path}")
                raise PermissionError(13, "confined", path)

    def _is_secret(self, path: str | bytes) -> bool:
        place = Path(os.path.realpath(os.fsdecode(path)))
        return self.secret is not None and place.is_relative_to(self.secret)


_guard = _Guard()
_installed = False


@contextmanager
def confined(folder: Path | None, secret: Path | None = None) -> Iterator[None]:
    """Work in this process that changes files below `folder` alone, or none at all, and starts no process.

    Args:
        folder: None = none at all.
        secret: a folder that is not even read.

    Raises:
        AssertionError: it tried to; nothing has happened.
    """
    global _installed
    if not _installed:
        sys.addaudithook(_guard)  # for ever: hooks cannot be taken out
        _installed = True
    _guard.folder, _guard.secret = folder and folder.resolve(), secret and secret.resolve()
    _guard.escapes = []
    _guard.armed = True
    try:
        yield
    finally:
        _guard.armed = False
    assert not _guard.escapes, _guard.escapes
