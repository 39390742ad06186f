"""The feature store: regions of many images, computed once and read at random while training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from caption.errors import DataError, first_few
from caption.features.key import differences, feature_key
from caption.features.shards import VERIFY, PhotoFile, Shard, checksums, id_digest, plain_id, shard_paths
from caption.regions import Regions, Views

if TYPE_CHECKING:
    from caption.data.readers.captions import CaptionedImage
    from caption.data.resize import ImageTransform
    from caption.encoders.base import Encoder
    from caption.errors import ImageError


class FeatureStore:
    """Regions of images in half precision, read from memory-mapped files.

    Opening reads what the shards say about their images. The checksum of an image is compared when it is first read. A
    store pickles as its path, so that each worker process opens it for itself.

    Args:
        folder: made by `caption features`.
        skip_damaged: open the shards that can be opened; `unreadable` lists the errors of the others.

    Raises:
        DataError: the folder is not a store, or is a damaged one.
    """

    def __init__(self, folder: str | os.PathLike[str], skip_damaged: bool = False) -> None:
        self.folder = Path(os.path.expanduser(folder))
        self.shards: list[Shard] = []
        self.unreadable: list[DataError] = []
        for path in shard_paths(self.folder):
            try:
                self.shards.append(Shard(path))
            except DataError as error:
                self.unreadable.append(error)
        if self.unreadable and not (skip_damaged and self.shards):
            raise self.unreadable[0]
        if not self.shards:
            raise DataError(
                f"'{self.folder}' is not a feature store: it has no shard-*.safetensors. Check the path, make the "
                "store with `caption features`, or convert one of an earlier release with its option --convert."
            )
        self.header = self.shards[0].header
        for shard in self.shards:
            if shard.header != self.header:
                raise DataError(
                    f"'{shard.path}' and '{self.shards[0].path}' were made with different encoders or transforms: "
                    "move one of them to another folder."
                )
        self._starts = np.cumsum([0, *map(len, self.shards)])  # number of each shard's first image
        names = np.concatenate([shard.tables["name"] for shard in self.shards])
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

    def __contains__(self, image_id: int | str) -> bool:
        return bool(self.find([image_id])[0] >= 0)

    def find(self, image_ids: Sequence[int | str]) -> np.ndarray:
        """Numbers (n,) of images in the order of `ids`; -1 where one is not in the store."""
        names = np.array([id_digest(image_id) for image_id in image_ids], "<u8")
        places = np.searchsorted(self._names, names).clip(max=len(self._names) - 1)
        return np.where(self._names[places] == names, self._order[places], -1)

    def ids(self) -> list[int | str]:
        """The ids of all images in the order of storing. Reads them from the files: do not call it in a loop."""
        return [image_id for shard in self.shards for image_id in shard.ids]

    def photo(self, image_id: int | str) -> PhotoFile | None:
        """Size and digest of the file that an image's regions were computed from; None if unknown.

        Raises:
            DataError: the image is not in the store.
        """
        shard, row = self._locate(self.check([image_id])[0])
        photo = PhotoFile(*shard.tables["photo"][row].tolist())
        return photo if photo.width else None

    def read_many(self, image_ids: Sequence[int | str]) -> Views:
        """The regions of B images, copied: of each view, vectors (B, L, D) float16, grid, and mask (B, L) or None.

        Raises:
            DataError: images are not in the store, or their regions are damaged.
        """
        numbers = self.check(image_ids)
        kinds = self.shards[0].regions.items()
        found = {name: np.empty((len(numbers), *array.shape[1:]), array.dtype) for name, array in kinds}
        damaged = []
        # In the order of the files, which a disk reads fastest. Row by row is as fast as np.take and torch.stack.
        for b in np.argsort(numbers).tolist():
            number = numbers[b]
            shard, row = self._locate(number)
            for name, out in found.items():
                out[b] = shard.regions[name][row]
            if not self._intact[number]:
                (checksum,) = checksums({name: out[b : b + 1] for name, out in found.items()})
                self._intact[number] = checksum == shard.tables["checksum"][row]
                if not self._intact[number]:
                    damaged.append(image_ids[b])
        if damaged:
            raise DataError(self._damage(damaged))
        tensors = {name: torch.from_numpy(array) for name, array in found.items()}
        return tuple(
            Regions(tensors[f"view.{k}"], grid, tensors.get(f"mask.{k}")) for k, grid in enumerate(self.grids)
        )

    def check(self, image_ids: Sequence[int | str]) -> list[int]:
        """Make sure, before training starts, that all these images are in the store.

        Returns:
            their numbers in the order of `ids`.

        Raises:
            DataError: some are not there; it names them and says what to do.
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

    def matches(self, encoder: Encoder, transform: ImageTransform, mirrored: bool = False) -> None:
        """Make sure that this encoder and transform would compute the same regions now; see `feature_key`.

        Raises:
            DataError: the store was made with something else; it says with what.
        """
        found = differences(self.key, feature_key(encoder, transform, mirrored))
        if found:
            raise DataError(
                f"the feature store '{self.folder}' was made with {'; '.join(found)}. Make another store with "
                "`caption features` and this configuration, or train without one."
            )

    def verify(self) -> None:
        """Compare every image with its checksum, which reads the whole store.

        Raises:
            DataError: some are damaged; it names them and says what to do.
        """
        bad = self.damaged()
        if bad.any():
            ids = self.ids()
            raise DataError(self._damage([ids[number] for number in np.flatnonzero(bad).tolist()]))

    def damaged(self) -> np.ndarray:
        """Which images (n,) bool, in the order of `ids`, have regions that are not as they were written."""
        return np.concatenate([shard.damaged() for shard in self.shards])

    def remove(self, gone: np.ndarray) -> None:
        """Remove images (n,) bool, in the order of `ids`, and unreadable shards from the disk.

        Afterwards this object is out of date; open the store anew.
        """
        for shard, part in zip(self.shards, np.split(gone, self._starts[1:-1]), strict=True):
            if part.any():
                shard.remove(part)
        for path in set(shard_paths(self.folder)) - {shard.path for shard in self.shards}:
            path.unlink()

    def _locate(self, number: int) -> tuple[Shard, int]:
        """The shard of an image, and its row there."""
        shard = int(np.searchsorted(self._starts, number, "right")) - 1
        return self.shards[shard], number - int(self._starts[shard])

    def _damage(self, image_ids: Sequence[int | str]) -> str:
        return (
            f"the feature store '{self.folder}' is damaged: {len(image_ids)} images are not as they were written: "
            f"{first_few(image_ids)}. {VERIFY}"
        )


@dataclass
class Extraction:
    """Counts of what was done to a store."""

    stored: int = 0
    """Images stored now."""
    present: int = 0
    """Images that were in the store before."""
    dropped: int = 0
    """Images that were damaged and removed, or left out in a conversion."""
    unreadable: int = 0
    """Whole shards that were damaged and removed."""
    changed: int = 0
    """Images removed because their file has changed."""
    failed: list[tuple[CaptionedImage, ImageError]] = field(default_factory=list)
    """Images that cannot be decoded, each with the reason; nothing is stored for them."""

    def __str__(self) -> str:
        counts = {
            "stored": self.stored,
            "stored before": self.present,
            "were damaged and are removed": self.dropped,
            "shards were damaged and are removed": self.unreadable,
            "had changed since they were stored and are removed": self.changed,
            "cannot be read and are not stored": len(self.failed),
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "no images"


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder of a store, made where it does not exist.

    Raises:
        DataError: it cannot be made, or holds a store of an earlier release.
    """
    target = Path(os.path.expanduser(folder))
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder '{target}' cannot be made: {error.strerror}. Choose another.") from None
    if (target / "store.json").exists():
        raise DataError(
            f"'{target}' holds a feature store of an earlier release: convert it with "
            f"`caption features --convert {target} --out NEW`, or choose another folder."
        )
    return target
