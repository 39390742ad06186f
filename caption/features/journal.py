"""Adding images to a feature store so that neither a kill nor a power cut can spoil it."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from types import TracebackType

import numpy as np

from caption.errors import DataError
from caption.features.files import (
    HEADER_FILE,
    IDS_FILE,
    INDEX_FILE,
    Header,
    check_files,
    read_index,
    shard_path,
    synchronise,
)
from caption.features.index import ENTRY, Photo, halves, packed, plain_id

COMMIT_SECONDS = 5.0


class FeatureJournal:
    """Writes one store, from where its last committed image left off.

    Regions go to the shards at once; every few seconds they are brought to the disk, then the ids, then the
    index entries that make them valid. What an interrupted run left behind the last entry is overwritten.

    Args:
        folder: of the store; it exists, and nobody else writes there (see `locked`).
        header: of the store; written where there is none.

    Raises:
        DataError: the store in the folder is damaged.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder = folder
        self.header = header
        self._entries: list[tuple[tuple[int, int], int, int, tuple[int, int], int, int]] = []  # not committed
        self._ids: list[bytes] = []  # likewise
        self._committed_at = time.monotonic()
        self._shard: FileIO | None = None
        try:
            self._begin()
        except OSError as error:
            raise self._failure(error) from error

    def _begin(self) -> None:
        if not (self.folder / HEADER_FILE).exists():
            (self.folder / INDEX_FILE).touch()  # before the header: a store without an index is damaged
            self.header.save(self.folder)
        entries, damaged = read_index(self.folder, self.header)
        check_files(self.folder, self.header, entries, damaged)
        self._slot = len(entries)
        self._id_end = int(entries["id_end"].max()) if len(entries) else 0
        self._cut_tails()

    def _cut_tails(self) -> None:
        _cut(self.folder / INDEX_FILE, self._slot * self.header.entry.itemsize)
        _cut(self.folder / IDS_FILE, self._id_end)
        number, place = divmod(self._slot, self.header.shard_images)
        if place:
            _cut(shard_path(self.folder, number), place * self.header.image_bytes)
            number += 1
        while (path := shard_path(self.folder, number)).exists():
            path.unlink()
            number += 1

    def add(self, image_ids: Sequence[int | str], photos: Sequence[Photo], regions: np.ndarray) -> None:
        """Append images, none of which is in the store.

        Args:
            image_ids: of B images.
            photos: the B files that the regions were computed from.
            regions: (B, L, D) float16.

        Raises:
            DataError: the disk is full or fails; what was committed before stays valid.
        """
        try:
            stored = regions.astype("<f2", copy=False)
            for image_id, photo, vectors in zip(image_ids, photos, stored, strict=True):
                self._append(plain_id(image_id), photo, np.ascontiguousarray(vectors))
            overdue = time.monotonic() - self._committed_at > COMMIT_SECONDS
            if overdue or len(self._entries) >= self.header.shard_images:
                self.commit()
        except OSError as error:
            raise self._failure(error) from error

    def _append(self, image_id: int | str, photo: Photo, vectors: np.ndarray) -> None:
        number, place = divmod(self._slot, self.header.shard_images)
        if place == 0 or self._shard is None:
            self._open_shard(number)
        assert self._shard is not None
        _write(self._shard, place * self.header.image_bytes, vectors.data)
        line = json.dumps(image_id).encode() + b"\n"
        self._slot += 1
        self._id_end += len(line)
        self._ids.append(line)
        size, crc = (photo.width, photo.height), zlib.crc32(vectors.data)
        self._entries.append((halves(image_id), self._id_end, photo.digest, size, crc, 0))

    def _open_shard(self, number: int) -> None:
        if self._shard is not None:
            os.fsync(self._shard.fileno())
            self._shard.close()
            self._shard = None  # should the next one fail to open, this one's images are good
        self._shard = _opened(shard_path(self.folder, number))

    def commit(self) -> None:
        """Make all that was added valid. It is on the disk when this returns."""
        if self._entries:
            if self._shard is not None:
                os.fsync(self._shard.fileno())
            synchronise(self.folder)
            ids = b"".join(self._ids)
            _store(self.folder / IDS_FILE, self._id_end - len(ids), ids)
            entries = packed(np.array(self._entries, ENTRY), self.header.entry)
            start = self._slot * self.header.entry.itemsize - len(entries)
            _store(self.folder / INDEX_FILE, start, entries)
            self._entries, self._ids = [], []
        self._committed_at = time.monotonic()

    def __enter__(self) -> FeatureJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, also when something went wrong elsewhere: what was added is good."""
        try:
            self.commit()
        except OSError as failure:
            if error is None:
                raise self._failure(failure) from failure
        finally:
            if self._shard is not None:
                self._shard.close()

    def _failure(self, error: OSError) -> DataError:
        return DataError(
            f"the feature store '{self.folder}' cannot be written ({error.strerror}). What was stored is "
            "kept: make room or repair the disk, give the same command again, and it continues."
        )


def _opened(path: Path) -> FileIO:
    """A file to write anywhere in, without buffering: after a failure, no rest of it turns up later."""
    return FileIO(path, "r+" if path.exists() else "x+")


def _write(file: FileIO, start: int, data: memoryview | bytes) -> None:
    file.seek(start)
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[file.write(rest) :]


def _store(path: Path, start: int, data: bytes) -> None:
    """Write, and have it reach the disk."""
    with _opened(path) as file:
        _write(file, start, data)
        os.fsync(file.fileno())


def _cut(path: Path, size: int) -> None:
    """Cut a file, if it exists, to so many bytes."""
    if path.exists():
        os.truncate(path, size)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other process add to the store while in the context.

    The operating system gives the lock back when a process ends, however it ends. Where it has no such locks
    (Windows, some network file systems), two runs on one folder are the user's to avoid.

    Raises:
        DataError: another process is adding to it.
    """
    try:
        file = _opened(folder / "lock")
    except OSError as error:
        raise DataError(f"'{folder}' cannot be written: {error.strerror}. Choose another folder.") from None
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"another run is adding to the feature store '{folder}': wait for it, or name another folder."
            ) from None
        except (ImportError, OSError):
            pass
        yield
