"""Taking images out of a feature store, so that they can be extracted again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from caption.features.files import (
    INDEX_FILE,
    Header,
    read_ids,
    read_index,
    short_shards,
    synchronise,
)
from caption.features.index import VOID, halves, is_void, packed
from caption.features.store import FeatureStore


def drop_damaged(folder: Path) -> int:
    """Make the entries of all damaged images void, which reads the whole store.

    Returns:
        how many images were dropped.

    Raises:
        DataError: there is no store, or `store.json` or the whole index is lost: nothing can be saved.
    """
    header = Header.load(folder)
    found, damaged = read_index(folder, header)
    entries = found.copy()
    entries[damaged | _beyond_the_files(folder, header, found)] = VOID
    unnamed = [image_id is None for image_id in read_ids(folder, entries)]
    entries[unnamed] = VOID
    _replace_index(folder, header, entries)
    entries[FeatureStore(folder).damaged()] = VOID
    _replace_index(folder, header, entries)
    return int((~is_void(found)).sum() - (~is_void(entries)).sum())


def drop(folder: Path, image_ids: Iterable[int | str]) -> None:
    """Make the entries of these images void, in a store without damage."""
    header = Header.load(folder)
    entries = read_index(folder, header)[0].copy()
    names = {halves(image_id) for image_id in image_ids}
    entries[[tuple(name) in names for name in entries["name"].tolist()]] = VOID
    _replace_index(folder, header, entries)


def _beyond_the_files(folder: Path, header: Header, entries: np.ndarray) -> np.ndarray:
    """Which entries (n,) speak of slots that their shard is too short for: bool (n,)."""
    slots = np.arange(len(entries))
    numbers, places = np.divmod(slots, header.shard_images)
    beyond = np.zeros(len(entries), bool)
    for number, size in short_shards(folder, header, entries).items():
        beyond |= (numbers == number) & ((places + 1) * header.image_bytes > size)
    return beyond


def _replace_index(folder: Path, header: Header, entries: np.ndarray) -> None:
    partial = folder / f"{INDEX_FILE}.partial"
    partial.write_bytes(packed(entries, header.entry))
    synchronise(partial)
    partial.replace(folder / INDEX_FILE)
    synchronise(folder)
