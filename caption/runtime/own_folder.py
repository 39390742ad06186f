"""Folders that this package fills with files of its own: data sets, stores, shards, exports, runs.

Such a folder has a list of what was written there, with a digest of each file. A file is ours if it is listed and has
not changed since, or is empty, as a power failure leaves files. Only such files are replaced, moved or deleted; all
others are the user's, whatever their names.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from caption.errors import UserError, first_few, printable
from caption.runtime import files
from caption.runtime.inputs import STREAM, TEXT, open_input, read_input

LIST = ".caption-files.jsonl"
"""One line per file that was written, `{"name": ..., "digest": ...}`."""
BEGINNING = b'{"name": "'
BLOCK = 1 << 20


class OwnFolder:
    """The files of this package in one folder. One process at a time may write to it: see `locked`.

    Args:
        path: the folder. It is made with the first file, see `caption.runtime.files.make_folder`.
        option: the command's option that names another folder, for messages.
    """

    def __init__(self, path: Path, option: str) -> None:
        self.path, self.option = path, option
        self._digests: dict[str, set[str]] | None = None

    def __contains__(self, name: str) -> bool:
        """Whether the file of that name (with slashes) is there, was written by us, and has not changed since."""
        digests = self._listed().get(name)
        path = self.path / name
        if digests is None or path.is_symlink() or not path.is_file():
            return False
        try:
            inside = path.parent.resolve().is_relative_to(self.path.resolve())  # not in a linked folder
            # Several digests, because a kill may have left the old file after the new one was listed.
            return inside and (path.stat().st_size == 0 or _digest(path) in digests)
        except (OSError, UserError):  # it cannot be read
            return False

    def listed(self, name: str) -> bool:
        """Whether a file of that name was once written by us; it may have changed."""
        return name in self._listed()

    def names(self) -> list[str]:
        """The names of all files that were written here, in the order of writing; some may have changed or gone."""
        return list(self._listed())

    def check(self, names: Iterable[str]) -> None:
        """Call this before any work: raise a UserError if files of these names are there that are not ours."""
        self._listed()  # refuses a list that is not ours
        foreign = [name for name in names if os.path.lexists(self.path / name) and name not in self]
        if foreign:
            raise UserError(
                f"{printable(self.path)} holds {first_few(map(printable, foreign))}, which this package did not "
                f"write there, or which has changed since: move it away, or choose another folder with {self.option}"
            )

    @contextmanager
    def write(self, name: str, durable: bool = True) -> Iterator[BinaryIO]:
        """Open a file of this folder; what it replaces must be ours.

        Args:
            name: below the folder, with slashes.
            durable: see `files.replacing`.

        Raises:
            UserError: a file of that name is not ours.
            OutputError: it cannot be written.
        """
        self.check([name])
        path = self.path / name
        if not path.parent.is_dir():
            files.make_folder(self.path, self.option)
            files.make_parents(path)
        with files.replacing_if(path, self._is_ours, durable) as file:
            yield file
            # Before the file has its name: a file that is not listed would never be deleted.
            file.seek(0)
            self._list({name: _digest_of(file)}, durable)

    def write_many(self, contents: Mapping[str, bytes]) -> None:
        """Write small files by name, like `write`, without waiting for the disk."""
        self.check(contents)
        if contents:
            files.make_parents(self.path / LIST)
        self._list({name: _digest_of(io.BytesIO(content)) for name, content in contents.items()}, False)
        for name, content in contents.items():
            files.make_parents(self.path / name)
            with files.replacing_if(self.path / name, self._is_ours, durable=False) as file:
                file.write(content)

    def write_json(self, name: str, content: Any, indent: int | None = None) -> None:
        """Write a file of JSON, see `write`; one with an indent has a last line end, too."""
        with self.write(name) as file:
            file.write(json.dumps(content, indent=indent).encode() + b"\n" * (indent is not None))

    def add(self, names: Iterable[str]) -> None:
        """List files that another library has just written for us."""
        for name in names:
            if name not in self:
                self._list({name: _digest(self.path / name)}, durable=False)

    def delete(self, names: Iterable[str] | None = None) -> list[str]:
        """Delete files, by default all that are ours, and the folders that this empties.

        Returns:
            names of files that are there and not ours; they stay.
        """
        kept = []
        for name in self.names() if names is None else names:
            path = self.path / name
            if name in self:
                files.delete(path)
                files.delete_empty(path.parent, self.path)
            elif os.path.lexists(path):
                kept.append(name)
        return kept

    def move(self, names: Iterable[str], target: OwnFolder) -> None:
        """Move files that are ours to another folder of the same file system; killed, it can be called again."""
        for name in names:
            if name in self:
                files.make_parents(target.path / name)
                files.make_parents(target.path / LIST)
                target._list({name: _digest(self.path / name)}, durable=True)
                files.move(self.path / name, target.path / name)
                files.delete_empty((self.path / name).parent, self.path)

    def _is_ours(self, path: Path) -> bool:
        return path.relative_to(self.path).as_posix() in self

    def _listed(self) -> dict[str, set[str]]:
        if self._digests is None:
            digests: dict[str, set[str]] = {}
            for name, digest in _read(self.path / LIST, self.option):
                digests.setdefault(name, set()).add(digest)
            self._digests = digests
        return self._digests

    def _list(self, digests: Mapping[str, str], durable: bool) -> None:
        lines = []
        for name, digest in digests.items():
            self._listed().setdefault(name, set()).add(digest)
            lines.append(f"{json.dumps({'name': name, 'digest': digest})}\n")
        files.append(self.path / LIST, "".join(lines).encode(), durable)


def _read(path: Path, option: str) -> Iterator[tuple[str, str]]:
    """The names and digests of a list. A line cut short by a kill is left out, and names outside the folder, too.

    Raises:
        UserError: it is not a list of ours.
    """
    if not os.path.lexists(path):
        return
    try:
        # No link is followed, and no pipe is waited for.
        content = None if path.is_symlink() else read_input(path, TEXT)
    except UserError:
        content = None
    if content is None or not (BEGINNING.startswith(content) or content.startswith(BEGINNING)):
        raise UserError(
            f"{printable(path)} is not the list of files that this package writes: move it away, or choose "
            f"another folder with {option}"
        )
    lines = content.splitlines()
    for line in lines:
        try:
            entry = json.loads(line)
            name, digest = str(entry["name"]), str(entry["digest"])
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if ".." not in Path(name).parts and not Path(name).is_absolute():
            yield name, digest


def _digest(path: Path) -> str:
    with open_input(path, STREAM) as file:
        return _digest_of(file)


def _digest_of(file: IO[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()
