"""The index of a feature store: what is known of each stored image, and under which name it is filed."""

from __future__ import annotations

import hashlib
import json
import operator
import struct
from typing import Any, NamedTuple

import numpy as np

FORMAT = 2

ENTRY = np.dtype(
    [
        ("name", "<u8", 2),  # digest of the id
        ("id_end", "<u8"),  # where the id's line ends in ids.txt
        ("photo", "<u8"),  # digest of the image file's bytes
        ("size", "<u4", 2),  # (width, height) of the upright image
        ("crc", "<u4"),  # CRC-32 of the regions as stored
        ("check", "<u4"),  # of the fields above
    ]
)
ENTRY_OF_FORMAT = {
    1: np.dtype([("name", "<u8", 2), ("id_end", "<u8"), ("crc", "<u4"), ("check", "<u4")]),
    FORMAT: ENTRY,
}
VOID = np.zeros((), ENTRY)


class Photo(NamedTuple):
    """What the index says of an image file."""

    width: int
    """Columns of the upright image, in pixels."""
    height: int
    """Rows of it."""
    digest: int
    """BLAKE2b of the file's bytes, 64 bits."""


def is_void(entries: np.ndarray) -> np.ndarray:
    """Which entries (n,) are void: bool (n,)."""
    void = entries["check"] == 0
    if void.any():  # which is rare, and looking closer at a million entries takes time
        void &= (entries["name"] == 0).all(-1) & (entries["id_end"] == 0)
    return void


def digest(image_id: int | str) -> bytes:
    """What an id is filed under: 16 bytes, different for 7 and "7"."""
    return hashlib.blake2b(json.dumps(plain_id(image_id)).encode(), digest_size=16).digest()


def plain_id(image_id: Any) -> int | str:
    """The id as a built-in type: integers of NumPy and torch count as integers."""
    return str(image_id) if isinstance(image_id, str) else int(operator.index(image_id))


def halves(image_id: int | str) -> tuple[int, int]:
    """The digest as the two numbers that an index entry holds."""
    first, second = struct.unpack("<QQ", digest(image_id))
    return first, second


def checks(entries: np.ndarray) -> np.ndarray:
    """Check values (n,) uint32 of index entries (n,) of any format: what their field `check` must be.

    A multiplicative hash, because it is fast for a million entries at once; it guards against accidents only.
    """
    mixed = np.full(entries.shape, 0x9E3779B97F4A7C15, np.uint64)  # not zero: a void entry is no valid one
    names = [name for name in entries.dtype.names or () if name != "check"]
    for column in (values for name in names for values in _columns(entries[name], entries.ndim)):
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
    return mixed.astype(np.uint32)


def _columns(values: np.ndarray, dimensions: int) -> list[np.ndarray]:
    """A field's values as arrays of one number per entry."""
    return [values] if values.ndim == dimensions else [values[..., i] for i in range(values.shape[-1])]


def packed(entries: np.ndarray, dtype: np.dtype) -> bytes:
    """Entries (n,) of dtype `ENTRY` as they are written to a file of `dtype`; their field `check` is made anew."""
    written = np.zeros(entries.shape, dtype)
    for name in dtype.names or ():
        written[name] = entries[name]
    written["check"] = np.where(is_void(entries), 0, checks(written))
    return written.tobytes()


def unpacked(data: bytes, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """What `packed` wrote, up to the last valid entry.

    Returns:
        entries (n,) of dtype `ENTRY`, and whether each is damaged (n,), bool. Void entries are not damaged.
    """
    found = np.frombuffer(data, dtype, count=len(data) // dtype.itemsize)
    valid = (found["check"] == checks(found)) & ~is_void(found)
    # Behind the last valid entry stands, at most, what a power cut left of an unfinished write.
    count = int(np.flatnonzero(valid)[-1]) + 1 if valid.any() else 0
    found, valid = found[:count], valid[:count]
    return _of_this_format(found), ~valid & ~is_void(found)


def _of_this_format(found: np.ndarray) -> np.ndarray:
    """Entries of any format as such of dtype `ENTRY`; what an older one does not say is zero."""
    if found.dtype == ENTRY:
        return found
    entries = np.zeros(found.shape, ENTRY)
    for name in found.dtype.names or ():
        entries[name] = found[name]
    return entries
