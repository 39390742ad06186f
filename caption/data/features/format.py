"""The files of a feature store: safetensors files, each readable without the others.

A store is a folder of `features-00000.safetensors`, `features-00001.safetensors`, ... A file of n images holds

    view.0, view.1, ...   (n, L, D) float16, the regions of each view
    mask.0, mask.1, ...   (n, L) bool, of the views that have a mask
    images                (n, 4) uint64: width and height of the upright photo, digest of its file, and CRC-32 of the
                          image's regions and masks

    checksum              (1,) uint32, CRC-32 of all but the regions and masks

and, as its metadata, `feature_store`: JSON with the format, the ids of the images, the key (`features.key`) and the
grids.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from caption.core.errors import DataError, ImageError, UserError
from caption.core.runtime.atomic_files import creating
from caption.core.runtime.inputs import PHOTO, STREAM, read_input
from caption.core.runtime.safe_loading import load_safetensors

FORMAT = 2
FILE_BYTES = 64 * 2**20
"""A file is written once its regions take this many bytes, so a kill loses no more than these."""
REMEDY = "and give the `caption features` command that made it again: it computes what is missing."

Arrays = dict[str, np.ndarray]


class PhotoFile(NamedTuple):
    """Size (of the upright image, in pixels) and digest (BLAKE2b of the file's bytes, 64 bits) of an image file."""

    width: int
    height: int
    digest: int


def photo_digest(path: Path) -> int | None:
    """BLAKE2b of a file's bytes, 64 bits, independent of name and date; None if the file cannot be read."""
    try:
        data = read_input(path, PHOTO)
    except ImageError:
        return None
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class Header(NamedTuple):
    """The metadata that all files of a store share."""

    key: dict[str, Any]
    """The encoder and transform that computed the regions, see `caption.data.features.key`."""
    grids: list[tuple[int, int]]
    """(rows, cols) of each view."""


class FeatureFile:
    """One file of a store, memory-mapped: regions are loaded from the disk when they are used.

    Attributes:
        header: see `Header`.
        ids: of the n images.
        photos: (n, 3) uint64, width, height and digest.
        checksums: (n,) uint64, of the regions and masks of each image.
        regions: the views and masks.
        kinds: type and shape of one image's views and masks, by the same names.

    Raises:
        DataError: it is not a file of a store, or is damaged. Regions are not compared with their checksums here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # PyTorch's tensors share the mapped file; NumPy's would copy all of it.
            texts, tensors = load_safetensors(path, STREAM)
            arrays = {name: tensors[name].numpy() for name in sorted(tensors)}
            checksum, text = arrays.pop("checksum").item(), texts["feature_store"]
            index = json.loads(text)
            if index["format"] != FORMAT:
                raise ValueError(f"it has format {index['format']}, not {FORMAT}")
            if checksum != _checksum(text, arrays):
                raise ValueError("its ids or tables are not as they were written")
            self.ids: list[int | str] = index["ids"]
            self.header = Header(
                dict(index["key"]), [(int(rows), int(cols)) for rows, cols in index["grids"]]
            )
            images = arrays.pop("images")
            if {len(array) for array in (images, *arrays.values())} != {len(set(self.ids))}:
                raise ValueError("its ids are not those of its images")
            if not all(isinstance(image_id, int | str) for image_id in self.ids):
                raise ValueError("its ids are neither numbers nor text")
            self.photos, self.checksums = images[:, :3], images[:, 3]
            self.regions: Arrays = arrays
            self.kinds = {name: (array.dtype.str, array.shape[1:]) for name, array in arrays.items()}
            if (
                images.dtype != np.uint64
                or images.shape[1:] != (4,)
                or not _are_views(self.kinds, self.header.grids)
            ):
                raise ValueError("its tables are not those of its grids")
        except UserError:
            raise
        except Exception as error:  # safetensors and damaged headers raise many types
            reason = " ".join(str(error).split())
            raise DataError(
                f"'{path}' is damaged, or not of a feature store ({reason}). Delete it, or move it away if it is "
                f"yours, {REMEDY}"
            ) from error


class FeatureWriter:
    """Appends images to the store in a folder that this process has locked, file by file."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder = folder
        self.header = header
        self._waiting: list[tuple[Sequence[int | str], Sequence[PhotoFile], Arrays]] = []

    def add(self, ids: Sequence[int | str], photos: Sequence[PhotoFile], regions: Arrays) -> None:
        """Append B images with their files and B rows of regions and masks."""
        self._waiting.append((ids, photos, regions))
        if sum(array.nbytes for *_, arrays in self._waiting for array in arrays.values()) >= FILE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the images added since the last file as a file of any size. It is on the disk when this returns.

        Raises:
            DataError: it cannot be written.
        """
        if not self._waiting:
            return
        ids, photos, regions = zip(*self._waiting, strict=True)
        self._waiting = []
        arrays = {name: np.concatenate([batch[name] for batch in regions]) for name in regions[0]}
        arrays["images"] = np.column_stack(
            [np.concatenate([np.array(batch, "<u8") for batch in photos]), checksums(arrays)]
        )
        index = {"format": FORMAT, "ids": [image_id for batch in ids for image_id in batch]}
        text = json.dumps(index | self.header._asdict())
        checksum = np.array([_checksum(text, arrays)], "<u4")
        data = save({**arrays, "checksum": checksum}, {"feature_store": text})
        paths = feature_paths(self.folder)
        number = int(paths[-1].stem.removeprefix("features-")) + 1 if paths else 0
        try:
            with creating(self.folder / f"features-{number:05d}.safetensors") as file:
                file.write(data)
        except UserError as error:
            raise DataError(
                f"the feature store '{self.folder}' cannot be written ({error}). The images stored before are kept: "
                "make room or repair the disk, and give the same command again: it continues."
            ) from error


def feature_paths(folder: Path) -> list[Path]:
    """The files of a store, in order."""
    return sorted(folder.glob("features-" + "[0-9]" * 5 + ".safetensors"))


def checksums(regions: Arrays) -> np.ndarray:
    """CRC-32 (n,) uint64 of n rows of arrays, one array after another in the order of their names."""
    arrays = [np.ascontiguousarray(regions[name]) for name in sorted(regions)]
    sums = [0] * len(arrays[0])
    for array in arrays:
        sums = [zlib.crc32(row, crc) for row, crc in zip(array, sums, strict=True)]
    return np.array(sums, "<u8")


def _are_views(kinds: dict[str, tuple[str, tuple[int, ...]]], grids: Sequence[tuple[int, int]]) -> bool:
    """Whether the arrays are one view for each grid, with or without a mask, and nothing else."""
    expected: dict[str, tuple[str, tuple[int, ...]]] = {}
    for k, (rows, cols) in enumerate(grids):
        expected[f"view.{k}"] = ("<f2", (rows * cols, kinds[f"view.{k}"][1][1]))
        if f"mask.{k}" in kinds:
            expected[f"mask.{k}"] = ("|b1", (rows * cols,))
    return kinds == expected


def _checksum(text: str, arrays: Arrays) -> int:
    """CRC-32 of the metadata, the table of images, and the shapes of all arrays."""
    shapes = sorted((name, array.dtype.str, array.shape) for name, array in arrays.items())
    return zlib.crc32(arrays["images"].tobytes(), zlib.crc32(f"{text}{shapes}".encode()))
