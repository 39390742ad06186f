"""Downloads: archives, folders and single files, all read in the same way.

Nothing here writes, and archives are never unpacked. A caller reads members and gives them new names, so a path in an
archive cannot lead out of the target folder.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from caption.core.errors import DataError
from caption.core.runtime.inputs import MEMBER, STREAM, open_input, read_input
from caption.data.files import utf8_text

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz")


@dataclass(frozen=True)
class Member:
    """A file of a download."""

    download: Path
    path: str
    """Within the download, with slashes."""
    size: int
    """Bytes."""
    content: Callable[[], bytes]
    """Reads it; the standard library raises almost anything if the download is damaged there."""
    crc: int | None = None
    """CRC-32 of the content, if the download has it."""
    file: Path | None = None
    """The file itself, if the download is not an archive."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.replace("\\", "/").rpartition("/")[2]

    def __str__(self) -> str:
        return f"'{self.path}' of '{self.download}'"

    def read(self) -> bytes:
        """The content. Raises a DataError if it is too large, or the download is damaged there."""
        if self.size > MEMBER.most:
            raise DataError(
                f"{self} has {self.size:,} bytes, more than a photo or text may have. Is it the right download?"
            )
        try:
            return self.content()
        except DataError:
            raise
        except Exception as error:
            raise _damage(str(self), error) from None

    def text(self) -> str:
        """The content as UTF-8 text. Raises a DataError if it is damaged, or is not UTF-8."""
        return utf8_text(self.read(), str(self))


def open_download(path: str) -> list[Member]:
    """The files of a folder, of a zip or tar archive (by its suffix), or any other file by itself.

    Links in archives, and what operating systems leave (resource forks, thumbnails, hidden files), are left out. The
    order is that of the archive, in which compressed tars should be read.

    Raises:
        DataError: it does not exist, cannot be read, or is damaged.
    """
    download = Path(os.path.expanduser(path))
    name = download.name.lower()
    if download.is_dir():
        members = _files(download, (file for file in download.rglob("*") if file.is_file()))
    elif name.endswith((".zip", *TAR_SUFFIXES)):
        members = _zipped(download) if name.endswith(".zip") else _tarred(download)
    else:
        open_input(download, MEMBER).close()
        members = _files(download.parent, [download])
    try:
        return [member for member in members if not _is_litter(member.path)]
    except DataError:
        raise
    except Exception as error:
        raise _damage(f"'{download}'", error) from None


def _files(folder: Path, files: Iterable[Path]) -> Iterator[Member]:
    for file in files:
        path = file.relative_to(folder).as_posix()
        yield Member(folder, path, file.stat().st_size, partial(read_input, file, MEMBER), file=file)


def _zipped(download: Path) -> Iterator[Member]:
    archive = zipfile.ZipFile(open_input(download, STREAM))
    for info in archive.infolist():
        if not info.is_dir():
            yield Member(download, info.filename, info.file_size, partial(archive.read, info), info.CRC)


def _tarred(download: Path) -> Iterator[Member]:
    archive = tarfile.open(fileobj=open_input(download, STREAM))  # noqa: SIM115, because members are read later
    for info in archive:
        if info.isreg():
            yield Member(download, info.name, info.size, partial(_tar_content, archive, info))


def _tar_content(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(info)
    assert file is not None  # a regular file
    return file.read()


def _damage(place: str, error: BaseException) -> DataError:
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")
    return DataError(f"{place} cannot be read ({reason}). If it is truncated or damaged, download it again.")


def _is_litter(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return any(part.startswith(".") or part in ("__MACOSX", "Thumbs.db") for part in parts)
