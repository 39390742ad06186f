"""The one place that creates, replaces, moves and deletes files.

Nothing else in this package or its tools opens a file for writing (`tests/project/test_file_access.py`). A file is
written without a name, or under a random one that nothing else can have, beside its place; it is flushed to the disk,
and then put there. It is there whole or not at all, whatever stops the process, and never written through a link.

What may be replaced depends on who named the file:

- `creating`: nothing. The file is new.
- `replacing_own`: what bears the mark of this package. For the outputs of commands.
- `replacing_if`: what the caller recognises as its own.
- `replacing`: any file. For a path that the user has named in Python, and what the caller knows to be our own.

Files that cannot bear a mark are listed in their folder: `caption.runtime.own_folder`.
"""

from __future__ import annotations

import os
import secrets
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from caption.errors import UserError, printable
from caption.runtime.inputs import STREAM, open_input, read_input

MARK = "caption: where the model looked"
"""In the metadata of figures (PNG, JPEG, PDF, SVG ...), in the first lines of pages and configurations, and at the
beginning of checkpoints."""
SEARCHED = 1 << 16
"""Bytes at both ends of a file in which the mark is looked for."""
ATTENTION = {"words.npy", "weights.npy", "gates.npy", "box.npy"}
"""Members of every file of attention weights."""
NAME_BYTES = 200
"""Of a file's name, those to which something can be added; file systems allow 255."""
Opener = Callable[["str | os.PathLike[str]"], AbstractContextManager[BinaryIO]]
"""`creating`, `replacing_own` or `replacing`."""


class OutputError(UserError):
    """A result cannot be written to the given path."""


@contextmanager
def creating(path: str | os.PathLike[str], durable: bool = True) -> Iterator[BinaryIO]:
    """Like `replacing`, but a file or link of that name stays.

    One that is there is an OutputError. If one appears while this one is written, the result gets another name beside
    it, which the OutputError says.
    """
    path = Path(os.path.expanduser(path))
    if os.path.lexists(path):
        raise OutputError(f"{printable(path)} exists: choose another name, or delete it")
    with replacing_if(path, lambda existing: False, durable) as file:
        yield file


@contextmanager
def replacing_own(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Like `replacing`, but a file that this package has not written stays: the result gets another name beside it."""
    with replacing_if(Path(path), is_own) as file:
        yield file


@contextmanager
def replacing(path: str | os.PathLike[str], durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when it is complete and on the disk.

    If writing fails, the file of that name is unchanged, and nothing is left of the incomplete one. A link is replaced
    itself, and what it leads to stays. The permissions of a file that is replaced are kept.

    Args:
        path: the file. A device or pipe, such as /dev/stdout, is written directly.
        durable: wait for the disk; False for many small files of which a last, durable one says that they are complete.

    Raises:
        OutputError: it cannot be written, for instance because the disk is full.
    """
    with replacing_if(Path(path), lambda existing: True, durable) as file:
        yield file


@contextmanager
def replacing_if(path: Path, may_replace: Callable[[Path], bool], durable: bool = True) -> Iterator[BinaryIO]:
    """Like `replacing`, but a file that `may_replace` does not know stays: the result gets another name beside it.

    Args:
        path: the file.
        may_replace: whether the file that is there, once the new one is complete, may be replaced.
        durable: see `replacing`.
    """
    path = Path(os.path.expanduser(path))
    temporary = None
    try:
        if is_device(path):
            # A pipe that nobody reads is an error, and not waited for.
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NONBLOCK", 0))
            if hasattr(os, "O_NONBLOCK"):
                os.set_blocking(descriptor, True)
            with os.fdopen(descriptor, "wb") as device:
                yield device
            return
        temporary = _open_temporary(path.parent, path.name)
        file, name = temporary
        yield file
        file.flush()
        if durable:
            os.fsync(file.fileno())
        _put(file, name, path, may_replace)
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
        if temporary is not None:
            _close(*temporary)


def write_new(path: Path, content: bytes) -> Path:
    """Write a file under this name or, where that is taken, with a number: config.yaml, config-2.yaml.

    Returns:
        its path. If one of these files has the same bytes already, that one, and nothing is written.
    """
    for beside in _names_beside(path):
        if (
            beside.is_file()
            and beside.stat().st_size == len(content)
            and read_input(beside, STREAM) == content
        ):
            return beside
        if not os.path.lexists(beside):
            with creating(beside) as file:
                file.write(content)
            return beside
    raise AssertionError("there are names without end")


def copy(source: Path, target: Path, link: bool = False) -> None:
    """Make a new file with another one's bytes; see `creating`.

    Args:
        source: the other file.
        target: the new one.
        link: make it another name of the same file where the file system can, which takes no room.
    """
    if link:
        with suppress(OSError):
            os.link(os.path.realpath(source), target)
            return
    with open_input(source, STREAM) as content, creating(target) as file:
        while block := content.read(1 << 20):
            file.write(block)


def move(source: Path, target: Path) -> None:
    """Give a file a new name in the same file system; another file of that name is an OutputError."""
    with _reporting(f"cannot move {printable(source)} to {printable(target)}"):
        # A kill may have left it both names.
        if not (os.path.lexists(target) and os.path.samefile(source, target)):
            _put_new(source, target)
    delete(source)


def delete(path: Path) -> None:
    """Delete a file that the caller knows to be this package's. A link is deleted itself; it may be gone already."""
    with _reporting(f"{printable(path)} cannot be deleted"):
        path.unlink(missing_ok=True)


def delete_empty(folder: Path, top: Path) -> None:
    """Delete a folder and those above it, below `top`, as far as they are empty."""
    while folder != top and folder.is_relative_to(top):
        try:
            folder.rmdir()
        except OSError:  # it is not empty
            return
        folder = folder.parent


def append(path: Path, content: bytes, durable: bool) -> None:
    """Add whole lines to a list of our own. A line that a kill has cut short is ended first."""
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


def make_parents(path: Path) -> None:
    """Make the folders above a file; they are below a folder of ours, see `make_folder`."""
    with _reporting(f"the folder {printable(path.parent)} cannot be made"):
        path.parent.mkdir(parents=True, exist_ok=True)


def is_own(path: Path) -> bool:
    """Whether a file bears the mark of this package, or is its file of attention weights."""
    try:
        with open_input(path, STREAM) as file:
            head = file.read(SEARCHED)
            file.seek(max(0, os.fstat(file.fileno()).st_size - SEARCHED))
            if MARK.encode() in head + file.read(SEARCHED):
                return True
            with zipfile.ZipFile(file) as archive:
                return set(archive.namelist()) >= ATTENTION
    except Exception:  # damaged archives raise almost anything
        return False


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
        _close(*_open_temporary(folder, "test"))


def _open_temporary(folder: Path, name: str) -> tuple[BinaryIO, Path | None]:
    """A file in `folder` that has no name yet, or, where the system cannot do that, a random one of its own."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):  # `_name_new` needs it
        with suppress(OSError):  # not every file system has it; a real fault comes up again below
            descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666)
            return os.fdopen(descriptor, "w+b"), None
    path = _random_name(folder, name)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "w+b"), path


def _random_name(folder: Path, name: str) -> Path:
    return folder / f".{short_name(name)}.{secrets.token_hex(8)}"


def short_name(name: str) -> str:
    """The part of a file's name to which something can be added."""
    return os.fsdecode(os.fsencode(name)[:NAME_BYTES])


def _close(file: BinaryIO, name: Path | None) -> None:
    """Close a temporary file and take away its name, if it still has one."""
    with suppress(OSError):  # a full disk has been reported
        file.close()
    if name is not None:
        name.unlink(missing_ok=True)


def _put(file: BinaryIO, name: Path | None, path: Path, may_replace: Callable[[Path], bool]) -> None:
    """Give a complete file its name. A file that must stay keeps its own, and this one gets another."""
    if name is not None:
        file.close()  # Windows renames no open file
    if not os.path.lexists(path):
        with suppress(FileExistsError):  # it has appeared since
            _name_new(file, name, path)
            return
    if not may_replace(path):
        beside = _free_name(file, name, path)
        raise OutputError(
            f"{printable(path)} appeared meanwhile, and this package did not write it: it stays, and the result is in "
            f"{printable(beside)}"
        )
    with suppress(OSError):  # it has gone since, or is a link that leads nowhere
        os.chmod(file.fileno() if name is None else name, stat.S_IMODE(path.stat().st_mode))
    if name is None:
        name = _random_name(path.parent, path.name)
        _name_new(file, None, name)
    try:
        os.replace(name, path)
    finally:
        name.unlink(missing_ok=True)


def _name_new(file: BinaryIO, name: Path | None, path: Path) -> None:
    """Give an open file a name that nothing has yet; a FileExistsError if something has."""
    if name is not None:
        _put_new(name, path)
        return
    # A directory's descriptor makes Python call linkat, which follows this link to the file.
    link = f"/proc/self/fd/{file.fileno()}"
    os.link(link, path, src_dir_fd=file.fileno(), follow_symlinks=True)


def _put_new(source: Path, target: Path) -> None:
    """Give a file a name that nothing has yet; a FileExistsError if something has. It may lose its own."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # a file system without hard links: reserve the name
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        os.replace(source, target)


def _free_name(file: BinaryIO, name: Path | None, path: Path) -> Path:
    for beside in _names_beside(path):
        with suppress(FileExistsError):
            _name_new(file, name, beside)
            return beside
    raise AssertionError("there are names without end")


def _names_beside(path: Path) -> Iterator[Path]:
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def is_device(path: Path) -> bool:
    """Whether `path` is there and neither a file nor a folder, or is a name of the system's for an open file."""
    if path.parent == Path("/dev") or path.is_relative_to("/dev/fd") or path.is_relative_to("/proc"):
        return os.path.lexists(path) and not path.is_dir()
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


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
