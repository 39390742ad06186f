"""The shards of a feature store: safetensors files, each complete in itself.

A store is a folder of `shard-00000.safetensors`, `shard-00001.safetensors`, ... A shard of n images holds

    view.0, view.1, ...   (n, L, D) float16, the regions of each view
    mask.0, mask.1, ...   (n, L) bool, of the views that have a mask
    name                  (n,) uint64, digest of the id, by which images are found
    photo                 (n, 3) uint64, width and height of the upright photo, digest of its file; 0 where unknown
    checksum              (n,) uint32, CRC-32 of the image's regions and masks
    ids                   (bytes,) uint8, the ids as a JSON list

and, as its metadata, `feature_store`: JSON with the key, the grids, and a CRC-32 of all but the regions.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from caption.errors import DataError

FORMAT = 3  # `caption.features.convert` reads 1 and 2
SHARD_BYTES = 64 * 2**20
"""A shard is written once its regions take so much; a kill loses no more than that."""
TABLES = ("name", "photo", "checksum", "ids")
VERIFY = (
    "Give the `caption features` command that made it again, with --verify: it extracts damaged images again."
)

Arrays = dict[str, np.ndarray]
Header = dict[str, Any]
"""Common to all shards of a store: `format`, `key` (`caption.features.key`), `grids` ([rows, cols] of each view)."""


class PhotoFile(NamedTuple):
    """Size (of the upright image, in pixels) and digest (BLAKE2b of the file's bytes, 64 bits) of an image file."""

    width: int
    height: int
    digest: int


class Shard:
    """One file of a store, memory-mapped: regions are loaded from the disk when they are used.

    Raises:
        DataError: the file is not a shard, or is damaged. Regions are not compared with their checksums here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # PyTorch's tensors share the mapped file. NumPy's would be copies of all of it.
            with safe_open(path, "pt") as file:
                self.header: Header = json.loads((file.metadata() or {})["feature_store"])
                self.tables: Arrays = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118
            if self.header["format"] != FORMAT:
                raise ValueError(f"it has format {self.header['format']}, not {FORMAT}")
            if self.header.pop("checksum") != _checksum(self.header, self.tables):
                raise ValueError("its header or tables are not as they were written")
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise DataError(
                f"'{path}' is damaged, or is not a shard of a feature store ({reason}). {VERIFY}"
            ) from error
        self.regions = {name: self.tables.pop(name) for name in sorted(set(self.tables) - set(TABLES))}

    def __len__(self) -> int:
        return len(self.tables["name"])

    @property
    def ids(self) -> list[int | str]:
        """The ids of its images, in order."""
        try:
            return json.loads(self.tables["ids"].tobytes())
        except (ValueError, RecursionError) as error:  # whoever writes other ids can write their checksum
            raise DataError(f"'{self.path}' has ids that are not JSON ({error}). {VERIFY}") from error

    def damaged(self) -> np.ndarray:
        """Which regions (n,) bool are not as they were written; reads the whole file."""
        return checksums(self.regions) != self.tables["checksum"]

    def remove(self, gone: np.ndarray) -> None:
        """Write the file anew without the images where `gone` (n,) bool; delete it if none remain."""
        if gone.all():
            self.path.unlink()
            return
        ids = [image_id for image_id, removed in zip(self.ids, gone, strict=True) if not removed]
        regions = {name: array[~gone] for name, array in self.regions.items()}
        write_shard(self.path, self.header, ids, self.tables["photo"][~gone], regions)


def write_shard(
    path: Path,
    header: Header,
    ids: Sequence[int | str],
    photos: Sequence[PhotoFile] | np.ndarray,
    regions: Arrays,
) -> None:
    """Write a shard of n images; the file appears, or is replaced, as a whole.

    Raises:
        DataError: it cannot be written; a file that was there before remains.
    """
    arrays = {
        **regions,
        "name": np.array([id_digest(image_id) for image_id in ids], "<u8"),
        "photo": np.array(photos, "<u8"),
        "checksum": checksums(regions),
        "ids": np.frombuffer(json.dumps([plain_id(image_id) for image_id in ids]).encode(), np.uint8),
    }
    metadata = {"feature_store": json.dumps({**header, "checksum": _checksum(header, arrays)})}
    partial = path.with_suffix(".partial")
    try:
        save_file(arrays, partial, metadata)
        _synchronise(partial)
        partial.replace(path)
        _synchronise(path.parent)
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"the feature store '{path.parent}' cannot be written ({error}). What was stored before is kept: make room "
            "or repair the disk, and give the same command again: it continues."
        ) from error
    finally:
        partial.unlink(missing_ok=True)


class ShardWriter:
    """Appends images to the store in a folder that this process has locked, shard by shard."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder, self.header = folder, header
        self._waiting: list[tuple[Sequence[int | str], Sequence[PhotoFile], Arrays]] = []

    def add(self, ids: Sequence[int | str], photos: Sequence[PhotoFile], regions: Arrays) -> None:
        """Append B images, none of which is in the store, with their files and B rows of regions and masks.

        Raises:
            DataError: a full shard cannot be written; those before it remain.
        """
        self._waiting.append((ids, photos, regions))
        if sum(array.nbytes for *_, arrays in self._waiting for array in arrays.values()) >= SHARD_BYTES:
            self.save()

    def save(self) -> None:
        """Write what was added as a shard, full or not. It is on the disk when this returns."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        ids = [image_id for some, _, _ in waiting for image_id in some]
        photos = [photo for _, some, _ in waiting for photo in some]
        pieces = [piece for _, _, piece in waiting]
        paths = shard_paths(self.folder)
        number = int(paths[-1].stem.removeprefix("shard-")) + 1 if paths else 0
        regions = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        path = self.folder / f"shard-{number:05d}.safetensors"
        write_shard(path, self.header, ids, photos, regions)


def shard_paths(folder: Path) -> list[Path]:
    """The files of all shards, in order."""
    return sorted(folder.glob("shard-" + "[0-9]" * 5 + ".safetensors"))


def plain_id(image_id: Any) -> int | str:
    """The id as a built-in type; integers of NumPy and torch count as integers."""
    return str(image_id) if isinstance(image_id, str) else int(operator.index(image_id))


def id_digest(image_id: int | str) -> int:
    """BLAKE2b of an id, 64 bits, different for 7 and "7". Two of a million ids agree with a probability of 3e-8."""
    text = json.dumps(plain_id(image_id)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def checksums(regions: Arrays) -> np.ndarray:
    """CRC-32 (n,) uint32 of n rows of arrays, one array after another in the order of their names."""
    arrays = [np.ascontiguousarray(regions[name]) for name in sorted(regions)]
    found = [0] * len(arrays[0])
    for array in arrays:
        found = [zlib.crc32(row, crc) for row, crc in zip(array, found, strict=True)]
    return np.array(found, "<u4")


def _checksum(header: Header, arrays: Arrays) -> int:
    """CRC-32 of the header, the tables, and the shapes of all arrays."""
    shapes = sorted((name, array.dtype.str, array.shape) for name, array in arrays.items())
    found = zlib.crc32(json.dumps([header, shapes]).encode())
    for name in TABLES:
        found = zlib.crc32(np.ascontiguousarray(arrays[name]).data, found)
    return found


def _synchronise(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to the store. The lock ends with the process, even if that is killed.

    Raises:
        DataError: another process is writing there, or the folder cannot be written to.
    """
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise DataError(
            f"another process is writing to the feature store '{folder}': wait for it, or choose another folder."
        ) from None
    except OSError as error:
        raise DataError(f"'{folder}' cannot be written: {error.strerror}. Choose another folder.") from None
    try:
        yield
    finally:
        lock.release()
