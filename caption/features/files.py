"""The files of a feature store: safetensors files, each complete in itself.

A store is a folder of `features-00000.safetensors`, `features-00001.safetensors`, ... A file of n images holds

    view.0, view.1, ...   (n, L, D) float16, the regions of each view
    mask.0, mask.1, ...   (n, L) bool, of the views that have a mask
    name                  (n,) uint64, digest of the id, by which images are found
    photo                 (n, 3) uint64, width and height of the upright photo, digest of its file
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save

from caption.errors import DataError, UserError
from caption.runtime.files import OwnFolder, creating, delete, replacing
from caption.runtime.inputs import STREAM
from caption.runtime.safe_loading import load_safetensors

FORMAT = 1
FILE_BYTES = 64 * 2**20
"""A file is written once its regions take so much; a kill loses no more than that."""
TABLES = ("name", "photo", "checksum", "ids")
VERIFY = (
    "Give the `caption features` command that made it again, with --verify: it extracts damaged images again."
)

Arrays = dict[str, np.ndarray]
Header = dict[str, Any]
"""Common to all files of a store: `format`, `key` (`caption.features.key`), `grids` ([rows, cols] of each view)."""


class PhotoFile(NamedTuple):
    """Size (of the upright image, in pixels) and digest (BLAKE2b of the file's bytes, 64 bits) of an image file."""

    width: int
    height: int
    digest: int


class FeatureFile:
    """One file of a store, memory-mapped: regions are loaded from the disk when they are used.

    Raises:
        DataError: it is not a file of a store, or is damaged. Regions are not compared with their checksums here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # PyTorch's tensors share the mapped file. NumPy's would be copies of all of it.
            texts, tensors = load_safetensors(path, STREAM)
            self.header: Header = json.loads(texts["feature_store"])
            self.tables: Arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
            if self.header["format"] != FORMAT:
                raise ValueError(f"it has format {self.header['format']}, not {FORMAT}")
            if self.header.pop("checksum") != _checksum(self.header, self.tables):
                raise ValueError("its header or tables are not as they were written")
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise DataError(f"'{path}' is damaged, or not of a feature store ({reason}). {VERIFY}") from error
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

    def remove(self, removed: np.ndarray) -> None:
        """Write the file anew without the images where `removed` (n,) bool; delete it if none remain."""
        if removed.all():
            delete(self.path)
            return
        ids = [image_id for image_id, is_removed in zip(self.ids, removed, strict=True) if not is_removed]
        regions = {name: array[~removed] for name, array in self.regions.items()}
        write_features_file(self.path, self.header, ids, self.tables["photo"][~removed], regions)


def write_features_file(
    path: Path,
    header: Header,
    ids: Sequence[int | str],
    photos: Sequence[PhotoFile] | np.ndarray,
    regions: Arrays,
) -> None:
    """Write a file of n images into a store; it appears, or is replaced, as a whole.

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
    try:
        with (replacing if os.path.lexists(path) else creating)(path) as file:
            file.write(save(arrays, metadata))
        OwnFolder(path.parent, "--out").add([path.name])
    except UserError as error:
        raise DataError(
            f"the feature store '{path.parent}' cannot be written ({error}). What was stored before is kept: make room "
            "or repair the disk, and give the same command again: it continues."
        ) from error


class FeatureWriter:
    """Appends images to the store in a folder that this process has locked, file by file."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder, self.header = folder, header
        self._waiting: list[tuple[Sequence[int | str], Sequence[PhotoFile], Arrays]] = []

    def add(self, ids: Sequence[int | str], photos: Sequence[PhotoFile], regions: Arrays) -> None:
        """Append B images, none of which is in the store, with their files and B rows of regions and masks."""
        self._waiting.append((ids, photos, regions))
        if sum(array.nbytes for *_, arrays in self._waiting for array in arrays.values()) >= FILE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was added as a file, full or not. It is on the disk when this returns."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        ids = [image_id for batch, _, _ in waiting for image_id in batch]
        photos = [photo for _, batch, _ in waiting for photo in batch]
        batches = [regions for _, _, regions in waiting]
        regions = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        paths = feature_paths(self.folder)
        number = int(paths[-1].stem.removeprefix("features-")) + 1 if paths else 0
        path = self.folder / f"features-{number:05d}.safetensors"
        write_features_file(path, self.header, ids, photos, regions)


def feature_paths(folder: Path) -> list[Path]:
    """The files of a store, in order."""
    return sorted(folder.glob("features-" + "[0-9]" * 5 + ".safetensors"))


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
    sums = [0] * len(arrays[0])
    for array in arrays:
        sums = [zlib.crc32(row, crc) for row, crc in zip(array, sums, strict=True)]
    return np.array(sums, "<u4")


def _checksum(header: Header, arrays: Arrays) -> int:
    """CRC-32 of the header, the tables, and the shapes of all arrays."""
    shapes = sorted((name, array.dtype.str, array.shape) for name, array in arrays.items())
    crc = zlib.crc32(json.dumps([header, shapes]).encode())
    for name in TABLES:
        crc = zlib.crc32(np.ascontiguousarray(arrays[name]).data, crc)
    return crc
