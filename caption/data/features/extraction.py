"""Building a feature store, or adding to one: images are decoded, encoded and stored, all three at the same time.

Threads decode, the caller's thread runs the encoder, and one more thread writes.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from rich.filesize import decimal
from torch import Tensor

from caption.core.errors import DataError, ImageError, first_few, number_of
from caption.core.regions import Views
from caption.core.runtime.atomic_files import check_room, locked
from caption.core.runtime.eval_mode import eval_mode
from caption.core.runtime.prefetch import prefetch
from caption.core.runtime.progress import progress_bar
from caption.data.augmentation import mirror
from caption.data.features.format import REMEDY, FeatureWriter, Header, PhotoFile, feature_paths, photo_digest
from caption.data.features.key import feature_key
from caption.data.features.store import FeatureStore
from caption.data.photos import ImageTransform
from caption.data.splits import CaptionedImage
from caption.encoders.base import Encoder

AHEAD = 3
"""Number of batches that are decoded ahead of the encoder."""
FILES_AHEAD = 64
"""Number of files that are read ahead when files are compared."""
BACKLOG_BYTES = 256 * 2**20
"""Bytes of regions that may wait to be written, so that the encoder does not wait for the disk."""


@dataclass
class Extraction:
    """Counts of the images stored, stored before and failed; `__str__` describes them."""

    stored: int = 0
    present: int = 0
    failed: list[tuple[CaptionedImage, ImageError]] = field(default_factory=list)
    """Images that cannot be decoded, each with the reason; nothing is stored for them."""

    def __str__(self) -> str:
        counts = {
            "stored": self.stored,
            "stored before": self.present,
            "cannot be read and are not stored": len(self.failed),
        }
        return ", ".join(f"{count:,} {text}" for text, count in counts.items() if count) or "no images"


@torch.no_grad()
def write_features(
    encoder: Encoder,
    transform: ImageTransform,
    images: Sequence[CaptionedImage],
    folder: str | os.PathLike[str],
    batch_size: int = 32,
    workers: int | None = None,
    device: str | torch.device = "cpu",
    mirrored: bool = False,
) -> Extraction:
    """Store the regions of all images that are not in the store yet: all views of each.

    It may be killed at any moment; called again, it continues. While another process writes to the folder, it waits,
    and then stores what is still missing. The encoder is moved to `device` and runs in evaluation mode. Batches always
    have `batch_size` images, filled up with blank ones: with the same batch size, an interrupted and an uninterrupted
    run give the same numbers to the last bit.

    Args:
        encoder: with its weights loaded.
        transform: makes pixels of an image.
        images: of all splits; one that is listed several times is stored once.
        folder: created if it does not exist.
        batch_size: images encoded at once.
        workers: threads that decode images; None = one per processor, 16 at most.
        device: where to encode.
        mirrored: encode the images with left and right exchanged.

    Raises:
        DataError: the folder holds a store made with another encoder or transform, a damaged store, a store of images
            that have changed, or a file that is not of a store; two images have the same id; regions are not finite
            numbers in half precision.
        UserError: the folder cannot be created or written to, or the disk has too little room.
    """
    target = Path(os.path.expanduser(folder))
    wanted = _distinct(images)
    device = torch.device(device)
    result = Extraction()
    with locked(target, "--out", wait=True), eval_mode(encoder.to(device)):
        blank = torch.zeros(1, 3, transform.height, transform.width, dtype=torch.uint8, device=device)
        views = encoder(blank)
        key = feature_key(encoder, transform.to_dict(), mirrored)
        store = None
        if feature_paths(target):
            store = FeatureStore(target)
            store.matches(encoder, transform.to_dict(), mirrored)
            stored = [image for image in wanted if image.id in store]
            _refuse_changed(store, stored, workers)
            result.present = len(stored)
            wanted = [image for image in wanted if image.id not in store]
        _check_room(target, views, len(wanted))
        writer = FeatureWriter(target, store.header if store else Header(key, [view.grid for view in views]))
        with progress_bar("extracting", len(wanted), result.present) as advance:
            try:
                backlog = BACKLOG_BYTES // (batch_size * _image_bytes(views))
                photos_read = prefetch(
                    lambda image: read_photo(image.path, transform), wanted, AHEAD * batch_size, workers
                )
                with ThreadPoolExecutor(1) as writing, closing(photos_read):
                    writes: deque[Future[None]] = deque()
                    while batch := list(islice(photos_read, batch_size)):
                        decoded = [(image.id, *photo) for image, photo in batch if isinstance(photo, tuple)]
                        if decoded:
                            ids, pixels, files = zip(*decoded, strict=True)
                            if mirrored:
                                pixels = tuple(map(mirror, pixels))
                            regions = _encode(encoder, pixels, batch_size, device)
                            writes.append(writing.submit(_write, writer, ids, files, regions))
                        result.failed += [(image, e) for image, e in batch if isinstance(e, ImageError)]
                        while len(writes) > backlog:
                            writes.popleft().result()
                        result.stored += len(decoded)
                        advance(len(batch))
                    for write in writes:
                        write.result()
            finally:
                writer.flush()  # after Ctrl-C, too
    return result


def _refuse_changed(store: FeatureStore, images: Sequence[CaptionedImage], workers: int | None) -> None:
    """Raise a DataError if the files of images in the store have changed since."""
    if changed := changed_photos(store, images, workers):
        files = dict.fromkeys(store.file_name(image.id) for image in changed)
        raise DataError(
            f"the feature store '{store.folder}' has the regions of other pixels for "
            f"{number_of(len(changed), 'image')}: "
            f"{first_few(repr(str(image.path)) for image in changed)}. Restore them, or name another folder; or delete "
            f"{first_few(files)} there, {REMEDY}"
        )


def changed_photos(
    store: FeatureStore, images: Sequence[CaptionedImage], workers: int | None
) -> list[CaptionedImage]:
    """Images of the store whose files have changed since their regions were computed; reads all files."""
    changed = []
    digests = prefetch(lambda image: photo_digest(image.path), images, FILES_AHEAD, workers)
    with closing(digests), progress_bar("comparing", len(images)) as advance:
        for image, digest in digests:
            if digest != store.photo(image.id).digest:
                changed.append(image)
            advance(1)
    return changed


def read_photo(path: Path, transform: ImageTransform) -> tuple[Tensor, PhotoFile]:
    """Pixels (3, H, W) uint8 of an image file, and its size and digest. ImageError: it cannot be decoded."""
    # Digest first: if the file is replaced in between, the store has the old digest, and the change is noticed.
    digest = photo_digest(path)
    photo = transform.read(path)
    if digest is None:
        raise ImageError(f"'{path}' changed while it was read. Wait until it is complete, and try again.")
    return photo.pixels, PhotoFile(*photo.size, digest)


def _distinct(images: Sequence[CaptionedImage]) -> list[CaptionedImage]:
    """Every image once. Features are stored under the id alone, so every id must mean one image."""
    by_id: dict[int | str, CaptionedImage] = {}
    for image in images:
        first = by_id.setdefault(image.id, image)
        if first.path != image.path:
            raise DataError(
                f"'{first.path}' and '{image.path}' have the same id {image.id!r}, under which only one can "
                "be stored: give every image of the data an id of its own."
            )
    return list(by_id.values())


def _image_bytes(views: Views) -> int:
    return sum(
        2 * vectors[0].numel() + (0 if mask is None else mask[0].numel()) for vectors, _, mask in views
    )


def _check_room(folder: Path, views: Views, images: int) -> None:
    """Print how large the store will be. Raises a UserError if the disk has too little room for it."""
    needed = images * (_image_bytes(views) + 64)  # 64: about what the tables take
    shapes = " + ".join(f"{rows}×{cols}×{vectors.shape[2]}" for vectors, (rows, cols), _ in views)
    description = f"{number_of(images, 'image')} of {shapes} numbers"
    check_room(folder, needed, description)
    if images:
        print(f"{description}: {decimal(needed)} in '{folder}'", file=sys.stderr)


def _encode(
    encoder: Encoder, pixels: Sequence[Tensor], batch_size: int, device: torch.device
) -> dict[str, Tensor]:
    """Regions in half precision and masks of b images, on the device. Does not wait for a GPU to finish."""
    # Always a full batch: how a convolution rounds may depend on the batch size. NumPy copies in this thread alone;
    # torch would use all processors, which are busy decoding.
    batch = np.zeros((batch_size, *pixels[0].shape), np.uint8)
    for row, image in zip(batch, pixels, strict=False):
        row[:] = image.numpy()
    images = torch.from_numpy(batch)
    if device.type == "cuda":
        images = images.pin_memory()
    regions = {}
    for k, (vectors, _, mask) in enumerate(encoder(images.to(device, non_blocking=True))):
        regions[f"view.{k}"] = vectors[: len(pixels)].to(torch.float16, memory_format=torch.contiguous_format)
        if mask is not None:
            regions[f"mask.{k}"] = mask[: len(pixels)]
    return regions


def _write(
    writer: FeatureWriter, ids: Sequence[int | str], photos: Sequence[PhotoFile], regions: dict[str, Tensor]
) -> None:
    for values in regions.values():
        # A sum is finite if all its terms are; it takes a third of the time of testing each number.
        finite = values.flatten(1).sum(1, dtype=torch.float32).isfinite().tolist()
        if not all(finite):
            raise DataError(
                f"the regions of image {ids[finite.index(False)]!r} are not finite numbers, or too large for half "
                "precision (65,504): choose another layer or other weights of the encoder"
            )
    writer.add(ids, photos, {name: values.cpu().numpy() for name, values in regions.items()})
