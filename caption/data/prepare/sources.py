"""What people download: archives, folders and single files, all read in one way.

Nothing here writes. Archives are never unpacked as a whole: whoever reads a member decides where it goes, under a
name of their own, so that no path in an archive can lead anywhere.
"""

from __future__ import annotations

import json
import lzma
import os
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from caption.data.readers.captions import located
from caption.errors import DataError

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz")
ARCHIVE_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    EOFError,
    OSError,
    RuntimeError,
)
"""What the standard library raises where an archive is cut, damaged or encrypted."""


@dataclass(frozen=True)
class Member:
    """A file of a source."""

    source: Source
    path: str
    """Within the source, with slashes."""
    size: int
    """Bytes."""
    crc: int | None = None
    """CRC-32 of the content, where the source knows it."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    def __str__(self) -> str:
        return f"'{self.path}' of '{self.source.where}'"

    def read(self) -> bytes:
        """All of it.

        Raises:
            DataError: the source is damaged there.
        """
        ((_, data),) = self.source.read([self])
        return data

    def text(self) -> str:
        """All of it, as UTF-8 with or without byte order mark.

        Raises:
            DataError: the source is damaged there, or it is no such text.
        """
        try:
            return self.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(f"{self} is no UTF-8 text (byte {error.start}). Get it anew.") from None

    def json(self) -> Any:
        """All of it, as JSON.

        Raises:
            DataError: the source is damaged there, or it is no JSON.
        """
        try:
            return json.loads(self.text())
        except json.JSONDecodeError as error:
            raise DataError(f"{self} is no JSON: {error.msg} in line {error.lineno}. Get it anew.") from None


class Source(ABC):
    """A place with files in it. `members` has all of them, less what operating systems leave behind."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.members = [
            Member(self, path, size, crc) for path, size, crc in self._listed() if not _is_litter(path)
        ]

    @abstractmethod
    def _listed(self) -> Iterable[tuple[str, int, int | None]]:
        """Path, size and, where it is known, CRC-32 of each regular file."""

    @abstractmethod
    def read(self, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
        """Members and what is in them, in the order in which the source has them.

        Raises:
            DataError: the source is damaged there.
        """

    def _damage(self, error: BaseException, path: str | None = None) -> DataError:
        where = f"'{path}' of '{self.where}'" if path else f"'{self.where}'"
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")
        return DataError(f"{where} is truncated or damaged ({reason}). Download it anew.")


class Folder(Source):
    """A folder and all below it."""

    def _listed(self) -> Iterator[tuple[str, int, int | None]]:
        for folder, _, names in os.walk(self.where):
            for name in names:
                path = Path(folder, name)
                if path.is_file():
                    yield path.relative_to(self.where).as_posix(), path.stat().st_size, None

    def read(self, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
        for member in members:
            yield member, _bytes(self.where / member.path)

    def link(self, member: Member, target: Path) -> bool:
        """Give a file a second name, which takes no room; False where the file system cannot."""
        try:
            os.link(os.path.realpath(self.where / member.path), target)
        except OSError:
            return False
        return True


class SingleFile(Source):
    """A file by itself."""

    def _listed(self) -> Iterator[tuple[str, int, int | None]]:
        yield self.where.name, self.where.stat().st_size, None

    def read(self, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
        for member in members:
            yield member, _bytes(self.where)


class Zip(Source):
    """A zip archive. A member's checksum is compared when it is read."""

    def __init__(self, where: Path) -> None:
        try:
            self._archive = zipfile.ZipFile(where)
        except ARCHIVE_DAMAGE as error:
            raise self._unreadable(where, error) from None
        super().__init__(where)

    def _unreadable(self, where: Path, error: BaseException) -> DataError:
        self.where = where
        return self._damage(error)

    def _listed(self) -> Iterator[tuple[str, int, int | None]]:
        for info in self._archive.infolist():
            if not info.is_dir():
                yield _safe(info.filename, self.where), info.file_size, info.CRC

    def read(self, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
        infos = {info.filename: info for info in self._archive.infolist()}
        for member in sorted(members, key=lambda member: infos[member.path].header_offset):
            try:
                yield member, self._archive.read(member.path)
            except ARCHIVE_DAMAGE as error:
                raise self._damage(error, member.path) from None


class Tar(Source):
    """A tar archive, compressed or not. Links in it are left out."""

    def _listed(self) -> Iterator[tuple[str, int, int | None]]:
        for info, _ in self._files():
            yield _safe(info.name, self.where), info.size, None

    def read(self, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
        wanted = {member.path: member for member in members}
        for info, archive in self._files():
            member = wanted.pop(info.name, None)
            if member is not None:
                try:
                    file = archive.extractfile(info)
                    assert file is not None  # it is a regular one
                    data = file.read()
                except ARCHIVE_DAMAGE as error:
                    raise self._damage(error, info.name) from None
                yield member, data
            if not wanted:
                return

    def _files(self) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
        """All regular files, one after another: a compressed archive has no other way."""
        try:
            with tarfile.open(self.where) as archive:
                for info in archive:
                    if info.isreg():
                        yield info, archive
        except ARCHIVE_DAMAGE as error:
            raise self._damage(error) from None


def open_source(path: str) -> Source:
    """A download: a folder, a zip or tar archive by its suffix, or any other file.

    Raises:
        DataError: it does not exist, cannot be read, is damaged, or has paths that lead out of it.
    """
    where = located(path)
    if where.is_dir():
        return Folder(where)
    if not where.is_file():
        raise DataError(f"'{where}' does not exist. Check the path of what you downloaded.")
    name = where.name.lower()
    if name.endswith(".zip"):
        return Zip(where)
    return Tar(where) if name.endswith(TAR_SUFFIXES) else SingleFile(where)


def _safe(path: str, where: Path) -> str:
    """The path, unless it leads out of the archive: then it is not the archive that it should be."""
    parts = PurePosixPath(path.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in path.partition("/")[0]:
        raise DataError(
            f"'{where}' holds the path '{path}', which leads out of it: do not use it, download it anew."
        )
    return path


def _is_litter(path: str) -> bool:
    """Whether a file was left by an operating system: resource forks, thumbnails, hidden files."""
    parts = PurePosixPath(path).parts
    return any(part.startswith(".") or part in ("__MACOSX", "Thumbs.db") for part in parts)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}.") from None
