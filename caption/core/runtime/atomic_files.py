"""The one place that creates, replaces, moves and deletes files, and the rule of which files this package may replace.

A file is ours if it bears our mark (`MARK`, `is_own`), or if the folder that it lies in has a manifest of ours that
names it (`OwnFolder`). Ours may be replaced, edited or not; all other files stay.

A file is written under a random name beside its place, flushed to the disk, and then given its name: it is there whole
or not at all, and never written through a link. What may be replaced depends on who named the file:

- `creating`: nothing. The file is new.
- `replacing_own`: what bears our mark. For the outputs of commands.
- `replacing`: any file. For a path that the user has named in Python, and what the caller knows to be our own.

Nothing else in this package or its tools opens a file for writing (`tests/project/test_file_access.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from caption.core.errors import UserError, first_few, printable
from caption.core.runtime.inputs import STREAM, TEXT, open_input, read_input

MARK = "caption: where the model looked"
"""What our files have in their metadata: the comment of a GIF or an archive (.npz), the text of a PNG, EXIF, a PDF's
creator, a page's generator, an entry of a checkpoint or of JSON."""
SEARCHED = 1 << 16
"""Bytes at both ends of a file in which the mark is looked for."""
NAME_BYTES = 200
"""Of a file's name, those to which something can be added; file systems allow 255."""
Opener = Callable[["str | os.PathLike[str]"], AbstractContextManager[BinaryIO]]
"""`creating`, `replacing_own` or `replacing`."""


class OutputError(UserError):
    """A result cannot be written to the given path."""


# -- writing ---------------------------------------------------------------------------------------------------


def creating(path: str | os.PathLike[str]) -> AbstractContextManager[BinaryIO]:
    """Like `replacing`, but a file or link of that name stays.

    One that is there, or appears while this one is written, is an OutputError.
    """
    path = Path(os.path.expanduser(path))
    if os.path.lexists(path):
        raise OutputError(f"{printable(path)} exists: choose another name, or delete it")
    return _writing(path, lambda existing: False)


def replacing_own(path: str | os.PathLike[str]) -> AbstractContextManager[BinaryIO]:
    """Like `replacing`, but a file that is there without our mark stays, and is an OutputError."""
    return _writing(Path(path), is_own)


def replacing(path: str | os.PathLike[str]) -> AbstractContextManager[BinaryIO]:
    """Open a file that takes the place of `path` when it is complete and on the disk.

    If writing fails, the file of that name is unchanged, and nothing is left of the incomplete one; a kill leaves it
    under its random name. A link is replaced itself, and what it leads to stays. The permissions of a file that is
    replaced are kept.

    Args:
        path: the file. A device or pipe, such as /dev/stdout, is written directly.

    Raises:
        OutputError: it cannot be written, for instance because the disk is full.
    """
    return _writing(Path(path), lambda existing: True)


@contextmanager
def _writing(path: Path, may_replace: Callable[[Path], bool], durable: bool = True) -> Iterator[BinaryIO]:
    path = Path(os.path.expanduser(path))
    temporary = _random_name(path)
    try:
        if is_device(path):
            # A pipe that nobody reads is an error, and not waited for.
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NONBLOCK", 0))
            if hasattr(os, "O_NONBLOCK"):
                os.set_blocking(descriptor, True)
            with os.fdopen(descriptor, "wb") as device:
                yield device
            return
        with open(temporary, "x+b") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        _rename(temporary, path, may_replace)
        if durable:
            _sync_folder(path.parent)
    except UserError:  # about a file that was read for this one, for instance
        raise
    except Exception as error:
        if (reason := _reason(error)) is None:
            raise
        kept = "; the file of that name is unchanged" if os.path.lexists(path) else ""
        raise OutputError(f"{printable(path)} could not be written: {reason}{kept}") from error
    finally:
        with suppress(OSError, ValueError):
            temporary.unlink()


def _random_name(path: Path) -> Path:
    return path.parent / f".{short_name(path.name)}.{secrets.token_hex(8)}"


def short_name(name: str) -> str:
    """The part of a file's name to which something can be added."""
    return os.fsdecode(os.fsencode(name)[:NAME_BYTES])


def _rename(temporary: Path, path: Path, may_replace: Callable[[Path], bool]) -> None:
    """Give a complete file its name, unless a file that must stay has it."""
    if not os.path.lexists(path):
        with suppress(FileExistsError):  # it has appeared since
            _rename_to_new(temporary, path)
            return
    if not may_replace(path):
        raise OutputError(
            f"{printable(path)} exists, and this package did not write it, so nothing was written: move it away, or "
            "choose another name"
        )
    with suppress(OSError):  # it has gone since, or is a link that leads nowhere
        shutil.copymode(path, temporary)
    os.replace(temporary, path)


def _rename_to_new(source: Path, target: Path) -> None:
    """Give a file a new name; it may lose its old one. Raises a FileExistsError if the name exists."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # a file system without hard links: reserve the name
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        os.replace(source, target)


def names_beside(path: Path) -> Iterator[Path]:
    """A name, then names with numbers: x.png, x-2.png, x-3.png, ..."""
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def is_device(path: Path) -> bool:
    """Whether `path` exists and is neither a file nor a folder, or is the system's name of an open file."""
    if path.parent == Path("/dev") or path.is_relative_to("/dev/fd") or path.is_relative_to("/proc"):
        return os.path.lexists(path) and not path.is_dir()
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def _sync_folder(folder: Path) -> None:
    """Write a new name to the disk, where the operating system can (not on Windows)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _reporting(failure: str) -> Iterator[None]:
    """Raise an OutputError with the reason, if the system refuses something."""
    try:
        yield
    except (OSError, ValueError) as error:
        if (reason := _reason(error)) is None:
            raise
        raise OutputError(f"{failure}: {reason}") from error


def _reason(error: BaseException | None) -> str | None:
    """What the operating system said; torch.save hides it behind an error of its own."""
    while error is not None:
        if isinstance(error, OSError):
            return error.strerror or str(error)
        if isinstance(error, ValueError) and "null byte" in str(error):
            return "its name has a null character"
        error = error.__cause__ or error.__context__
    return None


# -- the mark --------------------------------------------------------------------------------------------------


def is_own(path: Path) -> bool:
    """Whether a file bears our mark."""
    try:
        with open_input(path, STREAM) as file:
            start = file.read(SEARCHED)
            file.seek(max(0, file.seek(0, os.SEEK_END) - SEARCHED))
            return MARK.encode() in start or MARK.encode() in file.read()
    except (OSError, UserError):  # it cannot be read
        return False


# -- single files ----------------------------------------------------------------------------------------------


def write_new(path: Path, content: bytes) -> Path:
    """Write a file under this name or, where that is taken, with a number: config.yaml, config-2.yaml.

    Returns:
        its path. If one of these files has the same bytes already, that one, and nothing is written.
    """
    beside = next(name for name in names_beside(path) if not os.path.lexists(name) or _has(name, content))
    if not os.path.lexists(beside):
        with creating(beside) as file:
            file.write(content)
    return beside


def _has(path: Path, content: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(content) and read_input(path, STREAM) == content


def set_aside(path: Path) -> Path:
    """Give a damaged file the name NAME.damaged-1, or a higher number, and return it."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(name for name in names if not os.path.lexists(name))
    with _reporting(f"cannot rename {printable(path)}"):
        _rename_to_new(path, aside)
    delete(path)
    return aside


def delete(path: Path) -> None:
    """Delete a file that the caller knows to be this package's. A link is deleted itself; it may be gone already."""
    with _reporting(f"{printable(path)} cannot be deleted"):
        path.unlink(missing_ok=True)


# -- folders ---------------------------------------------------------------------------------------------------


def make_folder(folder: Path, option: str) -> None:
    """Make a folder that `option` named.

    Folders above it are made, too, but only below the working directory: elsewhere a missing one is likely misspelt.

    Raises:
        OutputError: it cannot be made, or written to.
    """
    missing = next((parent for parent in reversed(folder.parents) if not parent.exists()), None)
    if missing is not None and folder.is_absolute():
        raise OutputError(
            f"{option} {printable(folder)}: there is no folder {printable(missing)}; make it, or correct the name"
        )
    with _reporting(f"{option}: the folder {printable(folder)} cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
    with _reporting(f"{option}: the folder {printable(folder)} cannot be written to"):
        temporary = _random_name(folder / "test")
        temporary.touch(exist_ok=False)
        temporary.unlink()


def check_room(folder: Path, size: int, what: str) -> None:
    """Raise an OutputError if a disk has no room for `what`, of so many bytes. The folder there need not exist yet."""
    from rich.filesize import decimal

    present = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(present).free
    if size > free:
        raise OutputError(
            f"{what} take {decimal(size)}, but the disk of {printable(folder)} has {decimal(free)} left: make room, or "
            "choose a folder on another disk"
        )


def make_parents(path: Path) -> None:
    """Make the folders above a file; they are below a folder of ours, see `make_folder`."""
    with _reporting(f"the folder {printable(path.parent)} cannot be made"):
        path.parent.mkdir(parents=True, exist_ok=True)


LOCK = ".caption.lock"
"""The file by which a folder is locked; no other program has one of this name."""


@contextmanager
def locked(folder: Path, option: str, wait: bool = False) -> Iterator[None]:
    """Make a folder, see `make_folder`, and keep other processes of this package out of it.

    One process may lock it several times.

    The lock ends with the process, even if that is killed.

    Args:
        folder: it is made if it does not exist.
        option: the command's option that names another folder.
        wait: for as long as another process has locked the folder; it is told on stderr.

    Raises:
        UserError: another process has locked the folder, or it cannot be written to.
    """
    make_folder(folder, option)
    lock = FileLock(folder.resolve() / LOCK, is_singleton=True)
    with _reporting(f"{option}: the folder {printable(folder)} cannot be locked"):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                raise UserError(
                    f"another process is writing to {folder}: wait until it has ended, or choose another folder with "
                    f"{option}"
                ) from None
            print(f"waiting for another process, which is writing to {folder}", file=sys.stderr, flush=True)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


MANIFEST = ".caption-files.json"
"""`{"written_by": MARK, "files": [names]}`."""


class OwnFolder:
    """A folder that this package fills: a data set, shards, an export, results of a run.

    Many of these files have no place for a mark, so the folder has a manifest of their names. A file is ours if the
    manifest names it; all others stay. One process at a time may write to the folder: see `locked`.

    Args:
        path: the folder. It is made by `claim`, see `make_folder`.
        option: the command's option that names another folder, for messages.
    """

    def __init__(self, path: Path, option: str) -> None:
        self.path, self.option = path, option

    @cached_property
    def names(self) -> set[str]:
        """The names (with slashes) in the manifest; some of these files may not be there.

        Raises:
            UserError: a file that is not ours has the manifest's name.
        """
        path = self.path / MANIFEST
        if not os.path.lexists(path):
            return set()
        try:
            if path.is_symlink() or not is_own(path):
                raise ValueError
            names = {str(name) for name in json.loads(read_input(path, TEXT))["files"]}
        except (UserError, ValueError, TypeError, KeyError, RecursionError):
            raise UserError(
                f"{printable(path)} is not the manifest that this package writes: move it away, or choose another "
                f"folder with {self.option}"
            ) from None
        return {name for name in names if ".." not in Path(name).parts and not Path(name).is_absolute()}

    def check(self, names: Iterable[str]) -> None:
        """Call this before any work: raise a UserError if files of these names are there that are not ours."""
        foreign = [name for name in names if os.path.lexists(self.path / name) and not self._is_own(name)]
        if foreign:
            raise UserError(
                f"{printable(self.path)} holds {first_few(map(printable, foreign))}, which this package did not "
                f"write there: move it away, or choose another folder with {self.option}"
            )

    def claim(self, names: Iterable[str]) -> None:
        """Check names, see `check`, and put them into the manifest. Call this before any work, too.

        Raises:
            UserError: a file of such a name is not ours.
            OutputError: the manifest cannot be written.
        """
        names = [*names]
        self.check(names)
        if self.names.issuperset(names):
            return
        make_folder(self.path, self.option)
        self._write_manifest(self.names.union(names))

    @contextmanager
    def write(self, name: str, durable: bool = True) -> Iterator[BinaryIO]:
        """Open a file of this folder, and claim its name; what it replaces must be ours.

        Args:
            name: below the folder, with slashes.
            durable: wait for the disk; False for many small files of which a last, durable one says that they are
                complete.

        Raises:
            UserError: a file of that name is not ours.
            OutputError: it cannot be written.
        """
        self.claim([name])
        path = self.path / name
        make_parents(path)
        with _writing(path, lambda existing: self._is_own(name), durable) as file:
            yield file

    def write_json(self, name: str, content: Any, indent: int | None = None) -> None:
        """Write a file of JSON, see `write`; one with an indent has a last line end, too."""
        with self.write(name) as file:
            file.write(json.dumps(content, indent=indent).encode() + b"\n" * (indent is not None))

    def delete(self, names: Iterable[str]) -> None:
        """Delete those of the files that are ours, and the folders that this empties. The names are given up."""
        deleted = [name for name in names if self._is_own(name)]
        for name in deleted:
            delete(self.path / name)
            with suppress(OSError):  # it is not empty; this folder has its manifest
                os.removedirs((self.path / name).parent)
        if deleted:
            self._write_manifest(self.names.difference(deleted))

    def _write_manifest(self, names: set[str]) -> None:
        with replacing(self.path / MANIFEST) as file:
            file.write(json.dumps({"written_by": MARK, "files": sorted(names)}, indent=1).encode() + b"\n")
        self.names = names

    def _is_own(self, name: str) -> bool:
        """Whether the manifest names a file, and it is there, and not in a linked folder."""
        path = self.path / name
        if name not in self.names or path.is_symlink() or not path.is_file():
            return False
        try:
            return path.parent.resolve().is_relative_to(self.path.resolve())
        except OSError:
            return False


def file_digest(path: Path) -> str:
    """BLAKE2b of a file's bytes, 128 bits, in hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    with open_input(path, STREAM) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
