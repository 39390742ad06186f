"""Reading files: every file that a user names, directly or by its folder, is opened here.

Only regular files are opened. A pipe, a socket or a device could block its reader for ever, so it is refused. Each kind
of file has a maximal number of bytes, and no more are read, whatever the file's size in its metadata.
"""

from __future__ import annotations

import os
import re
import stat
from typing import IO, NamedTuple

from caption.core.errors import CheckpointError, DataError, ImageError, UserError, printable


class Kind(NamedTuple):
    """A kind of file."""

    name: str
    """With its article, for messages."""
    most: int
    """Maximal bytes of a file of this kind."""
    error: type[UserError]
    """Raised for a file that cannot be read."""


MIB, GIB = 1 << 20, 1 << 30
CONFIGURATION = Kind("a configuration", MIB, UserError)
"""PyYAML takes a minute for a few MiB."""
TEXT = Kind("a text file", GIB, DataError)
"""Karpathy's JSON of COCO, the largest in use, has 150 MB."""
PHOTO = Kind("a photo", GIB, ImageError)
"""Pillow's limit of 179 million pixels, with four uncompressed channels, is 716 MB."""
MEMBER = Kind("a photo or text of a data set", GIB, DataError)
MODEL = Kind("a model", 64 * GIB, CheckpointError)
STREAM = Kind("a file that is read piece by piece", 1 << 50, DataError)
"""Archives, stores and word vectors, of which only a part is in memory."""

KINDS_OF_NODE = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/+")
"""The beginning of a URL, of whose two slashes `pathlib` keeps one. A single letter would be a drive of Windows."""
PLACEHOLDER = re.compile(rb"(version https://git-lfs\.)|\s*<(?:!doctype html|html)\b", re.IGNORECASE)
"""The beginning of files that failed downloads leave in place of the real ones."""
PEEKED = 100
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Without this flag, opening a pipe would wait for its writer."""


def open_input(path: str | os.PathLike[str], kind: Kind) -> IO[bytes]:
    """Open a regular file for reading bytes.

    Raises:
        UserError: of the kind; it is missing, a folder, a pipe, a socket, a device, too large, cannot be opened, or is
            a pointer of Git LFS or a web page.
    """
    try:
        _check(os.stat(path), path, kind)  # before opening: opening a device can have effects
        file = open(path, "rb", opener=lambda path, flags: os.open(path, flags | NO_WAIT))  # noqa: SIM115
        try:
            _check(os.fstat(file.fileno()), path, kind)  # the file may have been replaced since
            if kind is not STREAM and (match := PLACEHOLDER.match(file.peek(PEEKED))):
                content = (
                    "a pointer of Git LFS, not the file itself. Run git lfs pull in its repository."
                    if match[1]
                    else f"a web page, and not {kind.name}. Download the file that the page leads to."
                )
                raise kind.error(f"{_quoted(path)} is {content}")
        except BaseException:
            file.close()
            raise
    except (FileNotFoundError, NotADirectoryError):
        if url := URL.match(os.fspath(path)):
            address = printable(os.fspath(path))[url.end() :]
            raise kind.error(
                f"'{url[1]}://{address}' is a URL, and only files are read. Download it, and name the file."
            ) from None
        raise kind.error(f"{_quoted(path)} does not exist. Check the path.") from None
    except OSError as error:
        raise kind.error(f"{_quoted(path)} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise kind.error(f"{_quoted(path)} cannot be the name of a file: it has a null character.") from None
    return file


def _quoted(path: str | os.PathLike[str]) -> str:
    return f"'{printable(os.fspath(path))}'"


def _check(status: os.stat_result, path: str | os.PathLike[str], kind: Kind) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise kind.error(f"{_quoted(path)} is a folder. Name the file in it.")
    if not stat.S_ISREG(status.st_mode):
        node = KINDS_OF_NODE.get(stat.S_IFMT(status.st_mode), "not a regular file")
        raise kind.error(
            f"{_quoted(path)} is {node}, and only regular files are read. Write its content to a file, and name that."
        )
    if status.st_size > kind.most:
        raise _too_large(_quoted(path), kind)


def _too_large(name: str, kind: Kind) -> UserError:
    return kind.error(
        f"{name} has more than {kind.most:,} bytes, the most for {kind.name}. Is it the right file?"
    )


def read_input(path: str | os.PathLike[str], kind: Kind) -> bytes:
    """The content of a regular file.

    Raises:
        UserError: of the kind; see `open_input`, or the file does not fit into memory.
    """
    with open_input(path, kind) as file:
        return read_stream(file, _quoted(path), kind)


def read_stream(stream: IO[bytes], name: str, kind: Kind) -> bytes:
    """The remaining content of a stream.

    Raises:
        UserError: of the kind; the stream fails, has too many bytes, or does not fit into memory.
    """
    chunks: list[bytes] = []
    remaining = kind.most
    try:
        # The bytes are counted, because the size in the metadata can be wrong: files of /proc have size 0.
        while chunk := stream.read(min(remaining + 1, 16 * MIB)):
            chunks.append(chunk)
            remaining -= len(chunk)
            if remaining < 0:
                raise _too_large(name, kind)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except OSError as error:
        raise kind.error(f"{name} cannot be read: {error.strerror}.") from None
    except MemoryError:
        raise kind.error(f"{name} does not fit into the memory. Is it the right file?") from None
