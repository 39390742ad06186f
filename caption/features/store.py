"""The feature store: the regions of many images, computed once, read at random while training.

`caption features` makes a store (`caption.features.writer`); its files are described in
`caption.features.files`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caption.data.images import ImageTransform
from caption.encoders.base import Encoder
from caption.errors import DataError, first_few
from caption.features.files import VERIFY, Header, check_files, read_ids, read_index, shard_path
from caption.features.index import Photo, halves, is_void, plain_id
from caption.features.key import differences, feature_key


class FeatureStore:
    """Regions (L, D) of images in half precision, read from memory-mapped files.

    Opening reads the index and checks the sizes of the files; a shard is mapped when an image in it is first
    read. A store pickles as its path, so that each worker process opens it for itself. An image's checksum is
    compared the first time a process reads it.

    Args:
        folder: made by `caption features`.

    Raises:
        DataError: the folder holds no store, or a damaged one.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser()
        self._header = Header.load(self.folder)
        self._entries, damaged = read_index(self.folder, self._header)
        check_files(self.folder, self._header, self._entries, damaged)
        slots = np.flatnonzero(~is_void(self._entries))
        names = self._entries["name"][slots, 0]
        order = np.argsort(names)
        self._names, self._slots = names[order], slots[order]
        self._intact = np.zeros(len(self._entries), bool)  # slots whose checksum this process has compared
        self._shards: dict[int, np.ndarray] = {}

    def __getstate__(self) -> str:
        return str(self.folder)

    def __setstate__(self, folder: str) -> None:
        self.__init__(folder)  # type: ignore[misc]

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, cols) of the regions, row by row."""
        return self._header.grid

    @property
    def region_size(self) -> int:
        """Length D of a region vector."""
        return self._header.region_size

    @property
    def key(self) -> dict[str, Any]:
        """What the regions were computed with: see `caption.features.key.feature_key`."""
        return self._header.key

    @property
    def knows_photos(self) -> bool:
        """Whether `photo` has an answer: not in stores of format 1."""
        return self._header.knows_photos

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, image_id: int | str) -> bool:
        return self._slot(image_id) is not None

    def ids(self) -> list[int | str]:
        """The ids of all stored images, in the order of storing. Reads a file: not for use in a loop."""
        return [image_id for image_id in read_ids(self.folder, self._entries) if image_id is not None]

    def photo(self, image_id: int | str) -> Photo | None:
        """Size and digest of the file that an image's regions were computed from; None in a store of format 1.

        Raises:
            DataError: the image is not in the store.
        """
        (slot,) = self._slots_of([image_id])
        if not self._header.knows_photos:
            return None
        entry = self._entries[slot]
        width, height = entry["size"].tolist()
        return Photo(width, height, int(entry["photo"]))

    def read(self, image_id: int | str) -> Tensor:
        """The regions of an image: (L, D) float16, a copy of one's own.

        Raises:
            DataError: the image is not in the store, or its regions are damaged.
        """
        return self.read_many([image_id])[0]

    def read_many(self, image_ids: Sequence[int | str]) -> Tensor:
        """The regions of B images: (B, L, D) float16, a copy of one's own.

        Raises:
            DataError: images are not in the store, or their regions are damaged.
        """
        slots = self._slots_of(image_ids)
        regions = np.empty((len(slots), *self._header.shape), "<f2")
        damaged = []
        # In the order of the files, where a disk has them one behind another. Row by row: np.take and torch.stack
        # are no faster, and torch would use all processors, and be slowed down by whoever is on them.
        for row in np.argsort(slots).tolist():
            regions[row] = self._record(slots[row])
            if not self._is_intact(slots[row], regions[row]):
                damaged.append(image_ids[row])
        if damaged:
            raise DataError(self._damage(damaged))
        return torch.from_numpy(regions.astype(np.float16, copy=False))

    def check(self, image_ids: Iterable[int | str]) -> None:
        """Make sure, before training starts, that all these images are there.

        Raises:
            DataError: some are not; it names them and says what to do.
        """
        wanted = list(image_ids)
        missing = [image_id for image_id in wanted if image_id not in self]
        if missing:
            raise DataError(self._missing(missing, len(wanted)))

    def matches(self, encoder: Encoder, transform: ImageTransform) -> None:
        """Make sure that the regions are those which this encoder computes, now, from images so transformed.

        Raises:
            DataError: the store was made with something else; it says with what.
        """
        found = differences(self.key, feature_key(encoder, transform))
        if found:
            raise DataError(
                f"the feature store '{self.folder}' was made with {'; '.join(found)}. Make another store "
                "with `caption features` and this configuration, or train without one."
            )

    def verify(self) -> None:
        """Compare every stored image with its checksum, which reads the whole store.

        Raises:
            DataError: some are damaged; it names them and says what to do.
        """
        slots = self.damaged()
        if slots:
            ids = read_ids(self.folder, self._entries[slots])
            raise DataError(self._damage(["(id unknown)" if name is None else name for name in ids]))

    def damaged(self) -> list[int]:
        """Slots whose regions or ids are not as they were written."""
        slots = np.sort(self._slots)
        ids = read_ids(self.folder, self._entries[slots])
        return [
            int(slot)
            for slot, image_id in zip(slots, ids, strict=True)
            if image_id is None or zlib.crc32(self._record(slot).data) != self._entries["crc"][slot]
        ]

    def _slot(self, image_id: int | str) -> int | None:
        first, second = halves(image_id)
        place = int(np.searchsorted(self._names, np.uint64(first)))
        while place < len(self._names) and self._names[place] == first:
            slot = int(self._slots[place])
            if self._entries["name"][slot, 1] == second:
                return slot
            place += 1
        return None

    def _slots_of(self, image_ids: Sequence[int | str]) -> list[int]:
        slots = [self._slot(image_id) for image_id in image_ids]
        missing = [image_id for image_id, slot in zip(image_ids, slots, strict=True) if slot is None]
        if missing:
            raise DataError(self._missing(missing, len(slots)))
        return [slot for slot in slots if slot is not None]

    def _is_intact(self, slot: int, regions: np.ndarray) -> bool:
        """Whether the regions (L, D) read from a slot are as they were written; compared once in a process."""
        if not self._intact[slot]:
            self._intact[slot] = zlib.crc32(regions.data) == self._entries["crc"][slot]
        return bool(self._intact[slot])

    def _record(self, slot: int) -> np.ndarray:
        """The regions (L, D) in a slot, as they lie in the file."""
        number, place = divmod(int(slot), self._header.shard_images)
        if number not in self._shards:
            path = shard_path(self.folder, number)
            try:
                images = path.stat().st_size // self._header.image_bytes
                shape = (images, *self._header.shape)
                self._shards[number] = np.memmap(path, "<f2", "r", shape=shape).view(np.ndarray)
            except (OSError, ValueError) as error:
                raise DataError(f"'{path}' cannot be read: {error}. {VERIFY}") from error
        if place >= len(self._shards[number]):
            raise DataError(f"'{shard_path(self.folder, number)}' is too short: it is damaged. {VERIFY}")
        return self._shards[number][place]

    def _missing(self, image_ids: list[int | str], wanted: int) -> str:
        names = first_few([repr(plain_id(image_id)) for image_id in image_ids])
        return (
            f"{len(image_ids)} of {wanted} images are not in the feature store '{self.folder}': {names}. "
            f"Run `caption features --config CONFIG --out {self.folder}` with this data's configuration: it "
            "adds what is missing and names images that cannot be read; take those out of the data."
        )

    def _damage(self, image_ids: list[int | str]) -> str:
        names = first_few([str(image_id) for image_id in image_ids])
        return (
            f"the feature store '{self.folder}' is damaged: {len(image_ids)} images are not as they were "
            f"written: {names}. {VERIFY}"
        )
