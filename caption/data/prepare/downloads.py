"""Downloads: archives, folders and single files, all read in the same way.

Nothing here writes. Archives are never unpacked: a caller reads members and chooses their new names, so a path in an
archive cannot lead out of the target folder.
"""

from __future__ import annotations

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

from caption.data.files import decoded, parsed
from caption.errors import DataError

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz")
ARCHIVE_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(tarfile.TarError, EOFError, OSError, RuntimeError),
)
"""Raised by the standard library for truncated, damaged and encrypted archives."""


@dataclass(frozen=True)
class Member:
    """A file of a download."""

    download: Download
    path: str
    """Within the download, with slashes."""
    size: int
    """Bytes."""
    crc: int | None = None
    """CRC-32 of the content, if the download has it."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    def __str__(self) -> str:
        return f"'{self.path}' of '{self.download.where}'"

    def read(self) -> bytes:
        """The content. Raises a DataError if the download is damaged there."""
        ((_, data),) = self.download.read([self])
        return data

    def text(self) -> str:
        """The content as UTF-8 text. Raises a DataError if it is damaged, or is not UTF-8."""
        return decoded(self.read(), str(self))

    def json(self) -> Any:
        """The content as JSON. Raises a DataError if it is damaged, or is not JSON."""
        return parsed(self.text(), str(self))


class Download(ABC):
    """Something with files in it. `members` are all of them, without those that operating systems leave."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.members = [
            Member(self, path, size, crc) for path, size, crc in self._listed() if not _is_litter(path)
        ]

    @abstractmethod
    def _listed(self) -> Iterable[tuple[str, int, int | None]]:
        """Path, size and, if known, CRC-32 of each regular file."""

    @abstractmethod
    def read(self, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
        """Members with their content, in the order of the download.

        Raises:
            DataError: the download is damaged there.
        """

    def _damage(self, error: BaseException, path: str | None = None) -> DataError:
        where = f"'{path}' of '{self.where}'" if path else f"'{self.where}'"
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")
        return DataError(f"{where} is truncated or damaged ({reason}). Download it again.")


class Folder(Download):
    """A folder and everything below it, or a single file in it."""

    def __init__(self, where: Path, file: str | None = None) -> None:
        self._file = file
        super().__init__(where)

    def _listed(self) -> Iterator[tuple[str, int, int | None]]:
        walk = os.walk(self.where) if self._file is None else [(str(self.where), [], [self._file])]
        for folder, _, names in walk:
            for path in (Path(folder, name) for name in names):
                if path.is_file():
                    yield path.relative_to(self.where).as_posix(), path.stat().st_size, None

    def read(self, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
        for member in members:
            path = self.where / member.path
            try:
                yield member, path.read_bytes()
            except OSError as error:
                raise DataError(f"'{path}' cannot be read: {error.strerror}.") from None

    def link(self, member: Member, target: Path) -> bool:
        """Make a hard link, which takes no disk space. Returns False if the file system cannot."""
        try:
            os.link(os.path.realpath(self.where / member.path), target)
        except OSError:
            return False
        return True


class Zip(Download):
    """A zip archive. The checksum of a member is verified when it is read."""

    def __init__(self, where: Path) -> None:
        self.where = where
        try:
            self._archive = zipfile.ZipFile(where)
        except ARCHIVE_ERRORS as error:
            raise self._damage(error) from None
        super().__init__(where)

    def _listed(self) -> Iterator[tuple[str, int, int | None]]:
        for info in self._archive.infolist():
            if not info.is_dir():
                yield _safe(info.filename, self.where), info.file_size, info.CRC

    def read(self, members: Sequence[Member]) -> Iterator[tuple[Member, bytes]]:
        offsets = {info.filename: info.header_offset for info in self._archive.infolist()}
        for member in sorted(members, key=lambda member: offsets[member.path]):
            try:
                yield member, self._archive.read(member.path)
            except ARCHIVE_ERRORS as error:
                raise self._damage(error, member.path) from None


class Tar(Download):
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
                    assert file is not None  # a regular file
                    data = file.read()
                except ARCHIVE_ERRORS as error:
                    raise self._damage(error, info.name) from None
                yield member, data
            if not wanted:
                return

    def _files(self) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
        """All regular files in sequence: a compressed archive allows no other order."""
        try:
            with tarfile.open(self.where) as archive:
                for info in archive:
                    if info.isreg():
                        yield info, archive
        except ARCHIVE_ERRORS as error:
            raise self._damage(error) from None


def open_download(path: str) -> Download:
    """A folder, a zip or tar archive (by its suffix), or any other file.

    Raises:
        DataError: it does not exist, cannot be read, is damaged, or has paths that lead out of it.
    """
    where = Path(path).expanduser()
    if where.is_dir():
        return Folder(where)
    if not where.is_file():
        raise DataError(f"'{where}' does not exist. Check the path of the download.")
    name = where.name.lower()
    if name.endswith(".zip"):
        return Zip(where)
    return Tar(where) if name.endswith(TAR_SUFFIXES) else Folder(where.parent, where.name)


def _safe(path: str, where: Path) -> str:
    """The path, unless it leads out of the archive: such an archive is not the published one."""
    parts = PurePosixPath(path.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in path.partition("/")[0]:
        raise DataError(
            f"'{where}' holds the path '{path}', which leads out of it: do not use it, download it again."
        )
    return path


def _is_litter(path: str) -> bool:
    """Whether an operating system left the file: resource forks, thumbnails, hidden files."""
    parts = PurePosixPath(path).parts
    return any(part.startswith(".") or part in ("__MACOSX", "Thumbs.db") for part in parts)
