"""Conversion of feature stores of formats 1 and 2 into safetensors shards.

Such a store has `store.json` (key, grid, region size), `index.bin` (an entry for each image; zeros where an image was
removed), `ids.txt` (the ids, one JSON value a line) and `shard-00000.f16`, ... (regions in half precision). Entries of
format 1 know nothing about the photo.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.lib.recfunctions import repack_fields

from caption.errors import DataError
from caption.features.shards import FORMAT, PhotoFile, ShardWriter, locked, shard_paths
from caption.features.store import Extraction, FeatureStore, make_folder
from caption.runtime.progress import progress_bar

ENTRY = np.dtype(
    [
        ("name", "<u8", 2),  # BLAKE2b of the id, 128 bits
        ("id_end", "<u8"),  # where the id's line ends in ids.txt
        ("photo", "<u8"),  # digest of the image file
        ("size", "<u4", 2),  # (width, height)
        ("crc", "<u4"),  # CRC-32 of the regions
        ("check", "<u4"),  # of the fields above
    ]
)
ENTRIES = {1: repack_fields(ENTRY[["name", "id_end", "crc", "check"]]), 2: ENTRY}
"""Type of an index entry, by format."""

Image = tuple[int | str, PhotoFile, np.ndarray]
"""Id, file (zeros where unknown), and regions (L, D) float16."""


def convert_store(
    source: str | os.PathLike[str], folder: str | os.PathLike[str], progress: bool = True
) -> Extraction:
    """Copy a store of format 1 or 2 into a folder, as a store of today's format.

    It may be killed at any moment; called again, it continues. Damaged images are left out and counted as `dropped`.

    Raises:
        DataError: the source is not such a store, or its header or index is lost; the folder holds a store made with
            something else, or cannot be written.
    """
    old, target = Path(source).expanduser(), make_folder(folder)
    try:
        header = json.loads((old / "store.json").read_text(encoding="utf-8"))
        dtype, grid, size = ENTRIES[header["format"]], tuple(header["grid"]), header["region_size"]
        shape = (grid[0] * grid[1], size, header["shard_images"])
        new_header = {"format": FORMAT, "key": header["key"], "grids": [list(grid)]}
        data = (old / "index.bin").read_bytes()
        entries = np.frombuffer(data, dtype, len(data) // dtype.itemsize)
        if len(grid) != 2 or min(shape) < 1:
            raise ValueError("its grid is not rows and columns")
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise DataError(
            f"'{old}' is not a feature store of format 1 or 2, or its store.json or index.bin is lost or damaged "
            f"({type(error).__name__}: {error}). Check the path, or make a new store with `caption features`."
        ) from None
    done = Extraction()
    with locked(target), progress_bar("converting", len(entries), show=progress) as advance:
        present: set[int | str] = set()
        if shard_paths(target):
            store = FeatureStore(target)
            if store.header != new_header:
                raise DataError(f"'{target}' holds a store made with something else: choose another folder.")
            present = set(store.ids())
        writer = ShardWriter(target, new_header)
        for image in _images(old, entries, *shape):
            if image is None:
                done.dropped += 1
            elif image[0] in present:
                done.present += 1
            else:
                image_id, photo, vectors = image
                writer.add([image_id], [photo], {"view.0": vectors[None]})
                done.stored += 1
            advance(1)
        writer.save()
    return done


def _images(
    folder: Path, entries: np.ndarray, regions: int, size: int, shard_images: int
) -> Iterator[Image | None]:
    """The images of a store in order; None for one whose entry, id or regions are not as they were written."""
    lines = (folder / "ids.txt").read_bytes() if (folder / "ids.txt").exists() else b""
    intact = entries["check"] == _checks(entries)
    complete = np.zeros(len(entries), ENTRY)
    for name in entries.dtype.names or ():
        complete[name] = entries[name]
    written = int(np.flatnonzero(intact)[-1]) + 1 if intact.any() else 0  # behind it, a write was interrupted
    shard = np.zeros((0, regions, size), "<f2")
    for slot, entry in enumerate(complete[:written]):
        number, row = divmod(slot, shard_images)
        if row == 0:
            path = folder / f"shard-{number:05d}.f16"
            there = path.stat().st_size // (regions * size * 2) if path.exists() else 0
            shard = np.memmap(path, "<f2", "r", shape=(there, regions, size)) if there else shard[:0]
        if not any(entry.tobytes()):  # removed
            continue
        end = int(entry["id_end"])
        line = lines[lines.rfind(b"\n", 0, max(end - 1, 0)) + 1 : end].rstrip(b"\n")
        known = hashlib.blake2b(line, digest_size=16).digest() == entry["name"].tobytes()
        if intact[slot] and known and row < len(shard) and zlib.crc32(shard[row].data) == entry["crc"]:
            width, height = entry["size"].tolist()
            yield json.loads(line), PhotoFile(width, height, int(entry["photo"])), shard[row]
        else:
            yield None


def _checks(entries: np.ndarray) -> np.ndarray:
    """What the field `check` of index entries must be."""
    mixed = np.full(entries.shape, 0x9E3779B97F4A7C15, np.uint64)
    for name in (entries.dtype.names or ())[:-1]:
        for column in entries[name].reshape(len(entries), -1).T:
            mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0xD6E8FEB86659FD93)
            mixed ^= mixed >> np.uint64(32)
    return mixed.astype(np.uint32)
