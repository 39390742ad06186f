"""The one place that creates, replaces, moves and deletes files, and the rule of which files are this package's.

A file is ours while it is as we wrote it: its digest stands in the mark that it bears (`seal`) or, where its format can
bear none, in the list of its folder (`OwnFolder`). Ours may be replaced or deleted. What the user has made, or has
edited since, stays.

A file is written under a random name beside its place, flushed to the disk, and then given its name: it is there whole
or not at all, and never written through a link. What may be replaced depends on who named the file:

- `creating`: nothing. The file is new.
- `replacing_own`: what bears our mark with its digest. For the outputs of commands.
- `replacing`: any file. For a path that the user has named in Python, and what the caller knows to be our own.

Nothing else in this package or its tools opens a file for writing (`tests/project/test_file_access.py`).
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import secrets
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from filelock import FileLock, Timeout

from caption.core.errors import UserError, first_few, printable
from caption.core.runtime.inputs import STREAM, TEXT, open_input, read_input

MARK = f"caption: where the model looked {'0' * 32}"
"""In the metadata of figures (PNG, JPEG, PDF, SVG ...) and of pages and reports; `seal` puts the digest for the zeros.
Archives (.npz, checkpoints) bear it as their comment."""
SEALED = re.compile(rb"caption: where the model looked ([0-9a-f]{32})")
SEARCHED = 1 << 16
"""Bytes at both ends of a file in which the mark is looked for."""
PNG, ZIP = b"\x89PNG", b"PK"
PNG_TEXT = len(b"tEXtSoftware\0")
"""Bytes of a chunk of PNG before the mark, from the chunk's type on; behind the mark are the 4 of its CRC-32."""
NAME_BYTES = 200
"""Of a file's name, those to which something can be added; file systems allow 255."""
Opener = Callable[["str | os.PathLike[str]"], AbstractContextManager[BinaryIO]]
"""`creating`, `replacing_own` or `replacing`."""


class OutputError(UserError):
    """A result cannot be written to the given path."""


# -- writing ---------------------------------------------------------------------------------------------------


def creating(path: str | os.PathLike[str]) -> AbstractContextManager[BinaryIO]:
    """Like `replacing`, but a file or link of that name stays.

    One that is there is an OutputError. If one appears while this one is written, the result gets another name beside
    it, which the OutputError says.
    """
    path = Path(os.path.expanduser(path))
    if os.path.lexists(path):
        raise OutputError(f"{printable(path)} exists: choose another name, or delete it")
    return _writing(path, lambda existing: False)


def replacing_own(path: str | os.PathLike[str]) -> AbstractContextManager[BinaryIO]:
    """Like `replacing`, but a file that is not ours stays: the result gets another name beside it."""
    return _writing(Path(path), is_own)


def replacing(path: str | os.PathLike[str], durable: bool = True) -> AbstractContextManager[BinaryIO]:
    """Open a file that takes the place of `path` when it is complete and on the disk.

    If writing fails, the file of that name is unchanged, and nothing is left of the incomplete one; a kill leaves it
    under its random name. A link is replaced itself, and what it leads to stays. The permissions of a file that is
    replaced are kept.

    Args:
        path: the file. A device or pipe, such as /dev/stdout, is written directly.
        durable: wait for the disk; False for many small files of which a last, durable one says that they are complete.

    Raises:
        OutputError: it cannot be written, for instance because the disk is full.
    """
    return _writing(Path(path), lambda existing: True, durable)


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
        _put(temporary, path, may_replace)
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


def _put(temporary: Path, path: Path, may_replace: Callable[[Path], bool]) -> None:
    """Give a complete file its name. A file that must stay keeps its own, and this one gets another."""
    if not os.path.lexists(path):
        with suppress(FileExistsError):  # it has appeared since
            _put_new(temporary, path)
            return
    if not may_replace(path):
        beside = _put_beside(temporary, path)
        raise OutputError(
            f"{printable(path)} appeared meanwhile, and this package did not write it: it stays, and the result is in "
            f"{printable(beside)}"
        )
    with suppress(OSError):  # it has gone since, or is a link that leads nowhere
        shutil.copymode(path, temporary)
    os.replace(temporary, path)


def _put_new(source: Path, target: Path) -> None:
    """Give a file a name that nothing has yet; a FileExistsError if something has. It may lose its own."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # a file system without hard links: reserve the name
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        os.replace(source, target)


def _put_beside(source: Path, path: Path) -> Path:
    for beside in names_beside(path):
        with suppress(FileExistsError):
            _put_new(source, beside)
            return beside
    raise AssertionError("there are names without end")


def names_beside(path: Path) -> Iterator[Path]:
    """A name, and others with numbers: x.png, x-2.png, x-3.png, ..."""
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def is_device(path: Path) -> bool:
    """Whether `path` is there and neither a file nor a folder, or is a name of the system's for an open file."""
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


def seal(file: BinaryIO) -> None:
    """Write the digest of a complete file into the mark that it bears; an archive first gets the mark as its comment.

    Args:
        file: of one of the functions above, before it is closed. A device stays as it is, and so does a file without
            mark, such as an SVG that is compressed.
    """
    if not file.readable():
        return
    file.seek(0)
    if file.read(len(ZIP)) == ZIP:
        file.seek(-2, os.SEEK_END)  # the length of the comment
        file.write(struct.pack("<H", len(MARK)) + MARK.encode())
    file.flush()
    if (mark := _read_mark(file)) is None:
        return
    file.seek(mark.place)
    file.write(mark.digest)
    file.seek(0)
    if file.read(len(PNG)) == PNG:
        length = PNG_TEXT + len(MARK)
        file.seek(mark.place + 32 - length)
        crc = zlib.crc32(file.read(length))
        file.write(struct.pack(">I", crc))


def is_own(path: Path) -> bool:
    """Whether a file bears our mark, and is as we wrote it."""
    try:
        with open_input(path, STREAM) as file:
            mark = _read_mark(file)
    except (OSError, ValueError, UserError):  # it cannot be read, or is empty
        return False
    return mark is not None and mark.digest == mark.written


class _Mark(NamedTuple):
    place: int
    """Of the digest in the file."""
    digest: bytes
    """Of the bytes around it."""
    written: bytes
    """The digest that stands there."""


def _read_mark(file: IO[bytes]) -> _Mark | None:
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
        if view[: len(ZIP)] == ZIP:
            match = SEALED.fullmatch(content, max(0, len(view) - len(MARK)))
        else:
            match = SEALED.search(content, 0, SEARCHED) or SEALED.search(
                content, max(0, len(view) - SEARCHED)
            )
        if match is None:
            return None
        digits, end = match.span(1)
        digest = hashlib.blake2b(view[:digits], digest_size=16)
        digest.update(view[end + 4 * (view[: len(PNG)] == PNG) :])
        return _Mark(digits, digest.hexdigest().encode(), match[1])


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
    """Give a damaged file the name NAME.damaged-1, or a higher number, and return it.

    It is not as we wrote it, so it may be the user's, and is neither replaced nor deleted.
    """
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(name for name in names if not os.path.lexists(name))
    with _reporting(f"cannot rename {printable(path)}"):
        _put_new(path, aside)
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


LIST = ".caption-files.jsonl"
"""One line per file that was written, `{"name": ..., "digest": ...}`."""
BEGINNING = b'{"name": "'
BLOCK = 1 << 20


class OwnFolder:
    """The files of this package in one folder that it fills: data sets, stores, shards, exports, runs.

    The folder has a list of what was written there, with a digest of each file. A file is ours if it is listed and has
    not changed since, or is empty, as a power failure leaves files. One process at a time may write to the folder: see
    `locked`.

    Args:
        path: the folder. It is made with the first file, see `make_folder`.
        option: the command's option that names another folder, for messages.
    """

    def __init__(self, path: Path, option: str) -> None:
        self.path, self.option = path, option

    def __contains__(self, name: str) -> bool:
        """Whether the file of that name (with slashes) is there, was written by us, and has not changed since."""
        digests = self._listed.get(name)
        path = self.path / name
        if digests is None or path.is_symlink() or not path.is_file():
            return False
        try:
            inside = path.parent.resolve().is_relative_to(self.path.resolve())  # not in a linked folder
            # Several digests, because a kill may have left the old file after the new one was listed.
            return inside and (path.stat().st_size == 0 or file_digest(path) in digests)
        except (OSError, UserError):  # it cannot be read
            return False

    def listed(self, name: str) -> bool:
        """Whether a file of that name was once written by us; it may have changed."""
        return name in self._listed

    def names(self) -> list[str]:
        """The names of all files that were written here, in the order of writing; some may have changed or gone."""
        return list(self._listed)

    def check(self, names: Iterable[str]) -> None:
        """Call this before any work: raise a UserError if files of these names are there that are not ours."""
        self.names()  # refuses a list that is not ours
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
            durable: see `replacing`.

        Raises:
            UserError: a file of that name is not ours.
            OutputError: it cannot be written.
        """
        self.check([name])
        path = self.path / name
        if not path.parent.is_dir():
            make_folder(self.path, self.option)
            make_parents(path)
        with _writing(path, lambda existing: name in self, durable) as file:
            yield file
            # Before the file has its name: a file that is not listed would never be deleted.
            file.seek(0)
            self._list(name, _digest_of(file), durable)

    def write_json(self, name: str, content: Any, indent: int | None = None) -> None:
        """Write a file of JSON, see `write`; one with an indent has a last line end, too."""
        with self.write(name) as file:
            file.write(json.dumps(content, indent=indent).encode() + b"\n" * (indent is not None))

    def delete(self, names: Iterable[str]) -> None:
        """Delete those of the files that are ours, and the folders that this empties."""
        for name in names:
            if name in self:
                delete(self.path / name)
                with suppress(OSError):  # it is not empty; this folder has its list
                    os.removedirs((self.path / name).parent)

    @cached_property
    def _listed(self) -> dict[str, set[str]]:
        digests: dict[str, set[str]] = {}
        for name, digest in _read_list(self.path / LIST, self.option):
            digests.setdefault(name, set()).add(digest)
        return digests

    def _list(self, name: str, digest: str, durable: bool) -> None:
        self._listed.setdefault(name, set()).add(digest)
        _append(self.path / LIST, f"{json.dumps({'name': name, 'digest': digest})}\n".encode(), durable)


def _read_list(path: Path, option: str) -> Iterator[tuple[str, str]]:
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
    for line in content.splitlines():
        try:
            entry = json.loads(line)
            name, digest = str(entry["name"]), str(entry["digest"])
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if ".." not in Path(name).parts and not Path(name).is_absolute():
            yield name, digest


def _append(path: Path, content: bytes, durable: bool) -> None:
    """Add whole lines to a list. A line that a kill has cut short is ended first."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with (
        _reporting(f"{printable(path)} cannot be written"),
        os.fdopen(os.open(path, flags, 0o666), "r+b") as file,
    ):
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            content = content if file.read(1) == b"\n" else b"\n" + content
        # Another name may be a copy of the user's, made by `cp -l`.
        if os.fstat(file.fileno()).st_nlink > 1:
            file.seek(0)
            with replacing(path, durable) as anew:
                anew.write(file.read() + content)
            return
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def file_digest(path: Path) -> str:
    """BLAKE2b of a file's bytes, 128 bits, in hexadecimal digits."""
    with open_input(path, STREAM) as file:
        return _digest_of(file)


def _digest_of(file: IO[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()
