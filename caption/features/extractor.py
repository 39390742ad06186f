"""Extraction: encode many images once and put their regions into a feature store.

Three things happen at a time: threads decode images (Pillow lets go of the interpreter meanwhile), the
caller's thread feeds the encoder, and one more thread writes. The encoder is what the others wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from caption.data.images import ImageTransform
from caption.data.readers.captions import CaptionedImage
from caption.encoders.base import Encoder
from caption.errors import DataError, ImageError
from caption.features.index import Photo
from caption.features.journal import FeatureJournal
from caption.features.photos import read_photo

AHEAD = 3
"""Batches that are decoded, or being decoded, while one is encoded."""
BACKLOG_BYTES = 256 * 2**20
"""Regions that may wait to be written, so that the encoder goes on while the disk takes its time."""

Decoded = tuple[Tensor, Photo] | ImageError


@dataclass
class Extraction:
    """What `write_features` did."""

    stored: int = 0
    """Images encoded and stored now."""
    present: int = 0
    """Images that were in the store before."""
    dropped: int = 0
    """Images that were found damaged and taken out, to be extracted anew."""
    changed: int = 0
    """Images whose file had changed and that were taken out, to be extracted anew."""
    failed: list[tuple[CaptionedImage, ImageError]] = field(default_factory=list)
    """Images that cannot be decoded, each with the reason; nothing is stored for them."""

    def __str__(self) -> str:
        counts = {
            "stored": self.stored,
            "stored before": self.present,
            "of the store were damaged and are taken out": self.dropped,
            "had changed since they were stored and are taken out": self.changed,
            "cannot be read and are not stored": len(self.failed),
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "no images"


class Extractor:
    """Decodes, encodes and writes, in the order of the images."""

    def __init__(
        self,
        encoder: Encoder,
        transform: ImageTransform,
        device: str | torch.device,
        batch_size: int,
        journal: FeatureJournal,
    ) -> None:
        self.encoder = encoder
        self.transform = transform
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.journal = journal

    def run(
        self,
        images: Sequence[CaptionedImage],
        workers: int,
        done: Extraction,
        advance: Callable[[int], None],
    ) -> None:
        """Extract all images; count them in `done`."""
        writes: deque[Future[None]] = deque()
        backlog = max(1, BACKLOG_BYTES // (self.batch_size * self.journal.header.image_bytes))
        with ThreadPoolExecutor(1) as writer, ThreadPoolExecutor(workers) as decoders:
            try:
                for batch, decoded in self._decode(images, decoders):
                    pairs = list(zip(batch, decoded, strict=True))
                    good = [(image.id, *found) for image, found in pairs if not isinstance(found, ImageError)]
                    if good:
                        ids, pixels, photos = zip(*good, strict=True)
                        writes.append(writer.submit(self._write, ids, photos, *self._encode(pixels)))
                    while len(writes) > backlog:
                        writes.popleft().result()
                    done.stored += len(good)
                    done.failed += [(image, e) for image, e in pairs if isinstance(e, ImageError)]
                    advance(len(batch))
                for write in writes:
                    write.result()
            finally:
                decoders.shutdown(cancel_futures=True)

    def _decode(
        self, images: Sequence[CaptionedImage], decoders: ThreadPoolExecutor
    ) -> Iterator[tuple[Sequence[CaptionedImage], list[Decoded]]]:
        """Batches in order, decoded ahead of their use."""
        batches = (images[i : i + self.batch_size] for i in range(0, len(images), self.batch_size))
        ahead: deque[tuple[Sequence[CaptionedImage], list[Future[Decoded]]]] = deque()
        for batch in batches:
            ahead.append((batch, [decoders.submit(self._pixels, image.path) for image in batch]))
            if len(ahead) > AHEAD:
                first, futures = ahead.popleft()
                yield first, [future.result() for future in futures]
        for first, futures in ahead:
            yield first, [future.result() for future in futures]

    def _pixels(self, path: Path) -> Decoded:
        try:
            return read_photo(path, self.transform)
        except ImageError as error:
            return error

    def _encode(self, pixels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Regions (b, L, D) float16 of b images, and whether they are all finite numbers (b,): on the device.

        Nothing here waits for the device, so that the next batch is on its way when this one is done.
        """
        # Always a full batch: how a convolution rounds may depend on the size of its batch. And NumPy copies with
        # this thread alone; torch would call on all processors, which have images to decode.
        batch = np.zeros((self.batch_size, *pixels[0].shape), np.uint8)
        for row, image in zip(batch, pixels, strict=False):
            row[:] = image.numpy()
        images = torch.from_numpy(batch)
        if self.device.type == "cuda":
            images = images.pin_memory()
        vectors = self.encoder(images.to(self.device, non_blocking=True)).vectors[: len(pixels)]
        regions = vectors.to(torch.float16, memory_format=torch.contiguous_format)
        # A sum is finite if all it adds is, and it is found in a third of the time of looking at each number.
        return regions, regions.sum((1, 2), dtype=torch.float32).isfinite()

    def _write(
        self, ids: Sequence[int | str], photos: Sequence[Photo], regions: Tensor, finite: Tensor
    ) -> None:
        usable = finite.tolist()
        if not all(usable):
            raise DataError(
                f"the regions of image {ids[usable.index(False)]!r} are not finite numbers, or too large for half "
                "precision (65,504): choose another layer or other weights of the encoder"
            )
        self.journal.add(ids, photos, regions.cpu().numpy())
