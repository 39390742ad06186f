"""The feature store: regions of many images, computed once and read at random while training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from caption.errors import DataError, first_few
from caption.features.files import (
    VERIFY,
    FeatureFile,
    PhotoFile,
    checksums,
    feature_paths,
    id_digest,
    plain_id,
)
from caption.features.key import differences, feature_key
from caption.regions import Regions, Views
from caption.runtime.files import OwnFolder, move

if TYPE_CHECKING:
    from caption.encoders.base import Encoder


class FeatureStore:
    """Regions of images in half precision, read from memory-mapped files.

    Opening reads what the files say about their images. The checksum of an image is compared when it is first read. A
    store pickles as its path, so that each worker process opens it for itself.

    Args:
        folder: made by `caption features`.
        skip_damaged: open the files that can be opened; `unreadable` lists the errors of the others that were once
            written here.

    Raises:
        DataError: the folder is not a store, or is a damaged one.
    """

    def __init__(self, folder: str | os.PathLike[str], skip_damaged: bool = False) -> None:
        self.folder = Path(os.path.expanduser(folder))
        self.files: list[FeatureFile] = []
        self.unreadable: list[DataError] = []
        own = OwnFolder(self.folder, "--out")
        for path in feature_paths(self.folder):
            try:
                self.files.append(FeatureFile(path))
            except DataError as error:
                if skip_damaged and not own.listed(path.name):
                    raise DataError(
                        f"'{path}' is not of a feature store, and this package did not write it there: move it away"
                    ) from error
                self.unreadable.append(error)
        if self.unreadable and not (skip_damaged and self.files):
            raise self.unreadable[0]
        if not self.files:
            raise DataError(
                f"'{self.folder}' is not a feature store: it has no features-*.safetensors. Check the path, or make "
                "the store with `caption features`."
            )
        self.header = self.files[0].header
        for file in self.files:
            if file.header != self.header:
                raise DataError(
                    f"'{file.path}' and '{self.files[0].path}' were made with different encoders or transforms: "
                    "move one of them to another folder."
                )
        self._starts = np.cumsum([0, *map(len, self.files)])  # number of each file's first image
        names = np.concatenate([file.tables["name"] for file in self.files])
        self._order = np.argsort(names)
        self._names = names[self._order]
        self._intact = np.zeros(len(names), bool)  # images whose checksum this process has compared

    def __getstate__(self) -> str:
        return str(self.folder)

    def __setstate__(self, folder: str) -> None:
        self.__init__(folder)  # type: ignore[misc]

    @property
    def key(self) -> dict[str, Any]:
        """What the regions were computed with: see `caption.features.key.feature_key`."""
        return self.header["key"]

    @property
    def grids(self) -> list[tuple[int, int]]:
        """(rows, cols) of each view."""
        return [(rows, cols) for rows, cols in self.header["grids"]]

    def __len__(self) -> int:
        return len(self._names)

    def find(self, image_ids: Sequence[int | str]) -> np.ndarray:
        """Numbers (n,) of images in the order of storing; -1 where one is not in the store."""
        names = np.array([id_digest(image_id) for image_id in image_ids], "<u8")
        places = np.searchsorted(self._names, names).clip(max=len(self._names) - 1)
        return np.where(self._names[places] == names, self._order[places], -1)

    def photo(self, image_id: int | str) -> PhotoFile:
        """Size and digest of the file that an image's regions were computed from.

        Raises:
            DataError: the image is not in the store.
        """
        file, row = self._locate(self.check([image_id])[0])
        return PhotoFile(*file.tables["photo"][row].tolist())

    def read_many(self, image_ids: Sequence[int | str]) -> Views:
        """The regions of B images, copied: of each view, vectors (B, L, D) float16, grid, and mask (B, L) or None.

        Raises:
            DataError: images are not in the store, or their regions are damaged.
        """
        numbers = self.check(image_ids)
        kinds = self.files[0].regions.items()
        regions = {name: np.empty((len(numbers), *array.shape[1:]), array.dtype) for name, array in kinds}
        damaged = []
        # In the order of the files, which a disk reads fastest. Row by row is as fast as np.take and torch.stack.
        for b in np.argsort(numbers).tolist():
            number = numbers[b]
            file, row = self._locate(number)
            for name, array in regions.items():
                array[b] = file.regions[name][row]
            if not self._intact[number]:
                (checksum,) = checksums({name: array[b : b + 1] for name, array in regions.items()})
                self._intact[number] = checksum == file.tables["checksum"][row]
                if not self._intact[number]:
                    damaged.append(image_ids[b])
        if damaged:
            raise DataError(
                f"the feature store '{self.folder}' is damaged: {len(damaged)} images are not as they were written: "
                f"{first_few(damaged)}. {VERIFY}"
            )
        tensors = {name: torch.from_numpy(array) for name, array in regions.items()}
        return tuple(
            Regions(tensors[f"view.{k}"], grid, tensors.get(f"mask.{k}")) for k, grid in enumerate(self.grids)
        )

    def check(self, image_ids: Sequence[int | str]) -> list[int]:
        """Make sure, before training starts, that all these images are in the store.

        Returns:
            their numbers.

        Raises:
            DataError: some are not; it names them and the remedy.
        """
        numbers = self.find(image_ids)
        if (numbers < 0).any():
            missing = [repr(plain_id(image_ids[i])) for i in np.flatnonzero(numbers < 0).tolist()]
            raise DataError(
                f"{len(missing)} of {len(numbers)} images are not in the feature store '{self.folder}': "
                f"{first_few(missing)}. Run `caption features --config CONFIG --out {self.folder}` with this data's "
                "configuration: it adds what is missing, and names images that cannot be read: remove these."
            )
        return numbers.tolist()

    def matches(self, encoder: Encoder, transform: dict[str, Any], mirrored: bool = False) -> None:
        """Make sure that this encoder and transform would compute the same regions now; see `feature_key`.

        Raises:
            DataError: the store was made with something else; it names the differences.
        """
        changes = differences(self.key, feature_key(encoder, transform, mirrored))
        if changes:
            raise DataError(
                f"the feature store '{self.folder}' was made with {'; '.join(changes)}. Make another store with "
                "`caption features` and this configuration, or train without one."
            )

    def damaged(self) -> np.ndarray:
        """Which images (n,) bool, in the order of storing, are not as they were written; reads the whole store."""
        return np.concatenate([file.damaged() for file in self.files])

    def remove(self, removed: np.ndarray) -> None:
        """Remove images (n,) bool, in the order of storing, from the disk, and give unreadable files other names.

        Afterwards this object is out of date; open the store anew.
        """
        for file, rows in zip(self.files, np.split(removed, self._starts[1:-1]), strict=True):
            if rows.any():
                file.remove(rows)
        for path in set(feature_paths(self.folder)) - {file.path for file in self.files}:
            # Not deleted: someone may have put a file of his own in the place of ours.
            names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
            move(path, next(name for name in names if not os.path.lexists(name)))

    def _locate(self, number: int) -> tuple[FeatureFile, int]:
        index = int(np.searchsorted(self._starts, number, "right")) - 1
        return self.files[index], number - int(self._starts[index])
