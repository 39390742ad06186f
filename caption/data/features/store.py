"""The feature store: regions of many images, computed once and read at random while training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from caption.core.errors import DataError, first_few, number_of
from caption.core.regions import Regions, Views
from caption.data.features.format import (
    REMEDY,
    FeatureFile,
    PhotoFile,
    checksums,
    feature_paths,
    photo_digest,
)
from caption.data.features.key import differences, feature_key

if TYPE_CHECKING:
    from caption.encoders.base import Encoder


COMPARED = 48
"""Photos whose files are compared with a store before training."""


class FeatureStore:
    """Regions of images in half precision, read from memory-mapped files.

    Opening reads the files' metadata. The checksum of an image is compared when it is first read. A store pickles as
    its path, so that each worker process opens its own.

    Args:
        folder: made by `caption features`.

    Raises:
        DataError: the folder is not a store, or one of its files is damaged; the message names it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.path.expanduser(folder))
        self.files = [FeatureFile(path) for path in feature_paths(self.folder)]
        if not self.files:
            raise DataError(
                f"'{self.folder}' is not a feature store: it has no features-*.safetensors. Check the path, or make "
                "the store with `caption features`."
            )
        self.header = self.files[0].header
        for file in self.files:
            if (file.header, file.kinds) != (self.header, self.files[0].kinds):
                raise DataError(
                    f"'{file.path}' and '{self.files[0].path}' were made with different encoders or transforms: "
                    "move one of them to another folder."
                )
        self._places = {image_id: (file, row) for file in self.files for row, image_id in enumerate(file.ids)}
        """The file of each image, and its row there."""
        self._intact: set[int | str] = set()  # images whose checksum this process has compared

    def __reduce__(self) -> tuple[type[FeatureStore], tuple[str]]:
        return FeatureStore, (str(self.folder),)

    @property
    def ids(self) -> list[int | str]:
        """The ids of all images."""
        return list(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._places

    def file_name(self, image_id: int | str) -> str:
        """The name of the file that holds an image's regions.

        Raises:
            DataError: the image is not in the store.
        """
        self.check([image_id])
        return self._places[image_id][0].path.name

    def photo(self, image_id: int | str) -> PhotoFile:
        """Size and digest of the image file that the regions were computed from.

        Raises:
            DataError: the image is not in the store.
        """
        self.check([image_id])
        file, row = self._places[image_id]
        return PhotoFile(*file.photos[row].tolist())

    def read_many(self, image_ids: Sequence[int | str]) -> Views:
        """The regions of B images, copied: of each view, vectors (B, L, D) float16, grid, and mask (B, L) or None.

        Raises:
            DataError: images are not in the store, or their regions are damaged; the message names the files.
        """
        self.check(image_ids)
        kinds = self.files[0].regions.items()
        regions = {name: np.empty((len(image_ids), *array.shape[1:]), array.dtype) for name, array in kinds}
        damaged: dict[int | str, str] = {}
        # Copying row by row is as fast as np.take and torch.stack.
        for b, image_id in enumerate(image_ids):
            file, row = self._places[image_id]
            for name, array in regions.items():
                array[b] = file.regions[name][row]
            if image_id not in self._intact:
                (checksum,) = checksums({name: array[b : b + 1] for name, array in regions.items()})
                if checksum == file.checksums[row]:
                    self._intact.add(image_id)
                else:
                    damaged[image_id] = file.path.name
        if damaged:
            raise DataError(
                f"the feature store '{self.folder}' is damaged: "
                f"{number_of(len(damaged), 'image is', 'images are')} not as written: {first_few(damaged)}. "
                f"Delete {first_few(dict.fromkeys(damaged.values()))}, {REMEDY}"
            )
        tensors = {name: torch.from_numpy(array) for name, array in regions.items()}
        return tuple(
            Regions(tensors[f"view.{k}"], grid, tensors.get(f"mask.{k}"))
            for k, grid in enumerate(self.header.grids)
        )

    def check(self, image_ids: Sequence[int | str]) -> None:
        """Make sure, before training starts, that all these images are in the store.

        Raises:
            DataError: some are missing; the message names them.
        """
        missing = [repr(image_id) for image_id in image_ids if image_id not in self]
        if missing:
            raise DataError(
                f"the feature store '{self.folder}' lacks {len(missing)} of {number_of(len(image_ids), 'image')}: "
                f"{first_few(missing)}. Run `caption features --config CONFIG --out {self.folder}` with this data's "
                "configuration: it adds what is missing, and names images that cannot be read: remove these."
            )

    def check_photos(self, paths: Mapping[int | str, Path]) -> None:
        """Make sure that some photos, evenly spaced among all, are those that the store was made from.

        Args:
            paths: of the photos by their ids, which are all in the store. Missing files are not compared, because
                training does not need them.

        Raises:
            DataError: files have other bytes.
        """
        compared = {
            image_id: photo_digest(path)
            for image_id, path in [*paths.items()][:: max(1, len(paths) // COMPARED)]
        }
        others = [
            paths[image_id]
            for image_id, digest in compared.items()
            if digest is not None and digest != self.photo(image_id).digest
        ]
        if others:
            raise DataError(
                f"the feature store '{self.folder}' was made from other photos: {first_few(others)}, of "
                f"{len(compared)} compared, are not the files that it names. Give it the photos that it was made from, "
                "or make another store with `caption features`."
            )

    def matches(self, encoder: Encoder, transform: dict[str, Any], mirrored: bool = False) -> None:
        """Make sure that this encoder and transform would compute the same regions now; see `feature_key`.

        Raises:
            DataError: the store was made with another encoder or transform; the message names the differences.
        """
        changes = differences(self.header.key, feature_key(encoder, transform, mirrored))
        kinds = self.files[0].kinds
        sizes = [kinds[f"view.{k}"][1][-1] for k in range(len(self.header.grids))]
        if not changes and sizes != list(encoder.region_sizes):
            changes = [f"regions of the sizes {sizes} instead of {list(encoder.region_sizes)}"]
        if changes:
            raise DataError(
                f"the feature store '{self.folder}' was made with {'; '.join(changes)}. Make another store with "
                "`caption features` and this configuration, or train without one."
            )
