"""The files of a feature store: what stands where, and how a damaged one is told from a good one.

    store.json         format, key, grid, region size, images per shard
    index.bin          one entry of 48 bytes per stored image, in the order of storing
    ids.txt            their ids, one JSON value a line
    shard-00000.f16    regions (L, D), image after image, as little-endian half-precision numbers
    shard-00001.f16    ...

Entry n of the index belongs to slot n of the shards. An entry is written only after all it speaks of has
reached the disk, so whatever stands behind the last whole entry is of no account and is overwritten. An entry
of zeros is void: nothing may be read from its slot.

Format 1 had entries of 32 bytes, which say nothing of the photo. Such stores are read and continued as they are.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from caption.errors import DataError, first_few
from caption.features.index import ENTRY_OF_FORMAT, FORMAT, digest, is_void, unpacked

SHARD_BYTES = 256 * 2**20

HEADER_FILE, INDEX_FILE, IDS_FILE = "store.json", "index.bin", "ids.txt"

ANEW = "Delete the folder and make the store anew with `caption features`."
VERIFY = (
    "Run the `caption features` command that made it again, with --verify: damaged images are extracted anew."
)


@dataclass(frozen=True)
class Header:
    """What `store.json` says."""

    key: dict[str, Any]
    """What the regions were computed with; see `caption.features.key`."""
    grid: tuple[int, int]
    """(rows, cols) of each image's regions."""
    region_size: int
    """Length D of a region vector."""
    shard_images: int
    """Slots in each shard."""
    format: int = FORMAT
    """Of the files, which stays what it was when the store was begun."""

    @classmethod
    def new(cls, key: dict[str, Any], grid: tuple[int, int], region_size: int) -> Header:
        """For a store with shards of about 256 MiB."""
        image_bytes = grid[0] * grid[1] * region_size * 2
        return cls(key, grid, region_size, max(1, SHARD_BYTES // image_bytes))

    @property
    def shape(self) -> tuple[int, int]:
        """(L, D) of an image's regions."""
        return self.grid[0] * self.grid[1], self.region_size

    @property
    def image_bytes(self) -> int:
        """Bytes of an image's regions."""
        return self.shape[0] * self.shape[1] * 2

    @property
    def entry(self) -> np.dtype:
        """Type of an index entry, as it lies in the file."""
        return ENTRY_OF_FORMAT[self.format]

    @property
    def knows_photos(self) -> bool:
        """Whether the index holds size and digest of the image files."""
        return self.format > 1

    def save(self, folder: Path) -> None:
        """Write the file; it appears whole or not at all."""
        partial = folder / f"{HEADER_FILE}.partial"
        partial.write_text(json.dumps(asdict(self), indent=2) + "\n")
        synchronise(partial)
        partial.replace(folder / HEADER_FILE)
        synchronise(folder)

    @classmethod
    def load(cls, folder: Path) -> Header:
        """Read the file.

        Raises:
            DataError: the folder holds no store, or one of another format, or the file is damaged.
        """
        path = folder / HEADER_FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(
                f"'{folder}' is no feature store: it has no {HEADER_FILE}. "
                "Check the path, or make the store with `caption features`."
            ) from None
        except OSError as error:
            raise DataError(f"'{path}' cannot be read: {error.strerror}.") from None
        except ValueError:
            raise DataError(f"'{path}' is damaged: it is no JSON. {ANEW}") from None
        found = data.get("format") if isinstance(data, dict) else None
        if found not in tuple(ENTRY_OF_FORMAT):
            raise DataError(f"'{folder}' is a feature store of format {found!r}, not 1 to {FORMAT}. {ANEW}")
        try:
            header = cls(data["key"], tuple(data["grid"]), data["region_size"], data["shard_images"], found)
            sound = header.image_bytes > 0 and header.shard_images > 0 and len(header.grid) == 2
        except (KeyError, TypeError, IndexError):
            sound = False
        if not sound:
            raise DataError(f"'{path}' is damaged: it does not say what the store holds. {ANEW}")
        return header


def shard_path(folder: Path, number: int) -> Path:
    """The file of a shard, counted from 0."""
    return folder / f"shard-{number:05d}.f16"


def read_index(folder: Path, header: Header) -> tuple[np.ndarray, np.ndarray]:
    """The index, up to its last valid entry.

    Returns:
        entries (n,) of dtype `ENTRY`, and whether each is damaged (n,), bool. Void entries are not damaged.

    Raises:
        DataError: the file is missing or cannot be read.
    """
    path = folder / INDEX_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"the feature store '{folder}' is damaged: it has no {INDEX_FILE}. {ANEW}") from None
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}.") from None
    return unpacked(data, header.entry)


def short_shards(folder: Path, header: Header, entries: np.ndarray) -> dict[int, int]:
    """Shards that are smaller than the index says, by number, with their size in bytes (-1: no such file)."""
    slots = np.flatnonzero(~is_void(entries))
    short = {}
    for number in np.unique(slots // header.shard_images).tolist():
        end = np.searchsorted(slots, (number + 1) * header.shard_images)
        needed = (int(slots[end - 1]) - number * header.shard_images + 1) * header.image_bytes
        size = file_size(shard_path(folder, number))
        if size < needed:
            short[number] = size
    return short


def check_files(folder: Path, header: Header, entries: np.ndarray, damaged: np.ndarray) -> None:
    """Raise a DataError, with the remedy, for a damaged index or for files shorter than it says."""
    if damaged.any():
        raise DataError(
            f"the feature store '{folder}' is damaged: {int(damaged.sum())} of the {len(entries)} entries of "
            f"{INDEX_FILE} are not as they were written. {VERIFY}"
        )
    short = short_shards(folder, header, entries)
    if short:
        names = first_few([shard_path(folder, number).name for number in short])
        raise DataError(f"the feature store '{folder}' is damaged: {names} missing or too short. {VERIFY}")
    if len(entries) and file_size(folder / IDS_FILE) < int(entries["id_end"].max()):
        raise DataError(f"the feature store '{folder}' is damaged: {IDS_FILE} missing or too short. {VERIFY}")


def read_ids(folder: Path, entries: np.ndarray) -> list[int | str | None]:
    """The ids of index entries; None for void entries and where `ids.txt` does not agree with the index."""
    try:
        data = (folder / IDS_FILE).read_bytes()
    except OSError:
        data = b""
    return [_read_id(data, int(entry["id_end"]), entry["name"].tobytes()) for entry in entries]


def _read_id(data: bytes, end: int, name: bytes) -> int | str | None:
    line = data[data.rfind(b"\n", 0, max(end - 1, 0)) + 1 : end]
    try:
        image_id = json.loads(line)
    except ValueError:
        return None
    return image_id if isinstance(image_id, (int, str)) and digest(image_id) == name else None


def file_size(path: Path) -> int:
    """Bytes of a file, -1 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def synchronise(path: Path) -> None:
    """Have a file, or the names in a folder, reach the disk."""
    if path.is_dir() and os.name == "nt":  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
