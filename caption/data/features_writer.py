"""Extraction: encode many images once and put their regions into a feature store.

Three things happen at a time: threads decode images (Pillow lets go of the interpreter meanwhile), the
caller's thread feeds the encoder, and one more thread writes. The encoder is what the others wait for.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from caption.data.captions import CaptionedImage, located
from caption.data.features import FeatureStore
from caption.data.features_files import ENTRY, HEADER_FILE, Header
from caption.data.features_journal import FeatureJournal, locked
from caption.data.features_key import feature_key
from caption.data.features_progress import progress_bar
from caption.data.features_repair import drop_damaged
from caption.data.images import ImageTransform, open_image
from caption.encoders.base import Encoder
from caption.errors import DataError, ImageError

AHEAD = 3
"""Batches that are decoded, or being decoded, while one is encoded."""
BACKLOG_BYTES = 256 * 2**20
"""Regions that may wait to be written, so that the encoder goes on while the disk takes its time."""

Decoded = Tensor | ImageError


@dataclass
class Extraction:
    """What `write_features` did."""

    stored: int = 0
    """Images encoded and stored now."""
    present: int = 0
    """Images that were in the store before."""
    dropped: int = 0
    """Images that were found damaged and taken out, to be extracted anew."""
    failed: list[tuple[CaptionedImage, ImageError]] = field(default_factory=list)
    """Images that cannot be decoded, each with the reason; nothing is stored for them."""

    def __str__(self) -> str:
        counts = {
            "stored": self.stored,
            "stored before": self.present,
            "of the store were damaged and are taken out": self.dropped,
            "cannot be read and are not stored": len(self.failed),
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "no images"


@torch.no_grad()
def write_features(
    encoder: Encoder,
    transform: ImageTransform,
    images: Sequence[CaptionedImage],
    folder: str | os.PathLike[str],
    batch_size: int = 32,
    workers: int | None = None,
    device: str | torch.device = "cpu",
    progress: bool = True,
    verify: bool = False,
) -> Extraction:
    """Store the regions of all images that are not in the store yet.

    It may be killed at any moment; called again, it goes on where it was. The encoder is moved to `device`
    and runs in evaluation mode. Batches always have `batch_size` images, blank ones if need be: with the same
    batch size, an interrupted and an uninterrupted run give the same numbers to the last bit.

    Args:
        encoder: with its weights loaded.
        transform: makes pixels of an image.
        images: of all splits; one that is listed several times is stored once.
        folder: made where it does not exist.
        batch_size: images encoded at once.
        workers: threads that decode images; None = one per processor, 16 at most.
        device: where to encode.
        progress: whether to write the size of the store and a progress bar to stderr.
        verify: first compare what is stored with its checksums, and extract damaged images anew.

    Raises:
        DataError: the folder holds a store made with something else, or a damaged one (and not `verify`); two
            images have one id; the disk has too little room; another run is writing there; regions are not
            finite numbers in half precision.
    """
    target = _folder(folder)
    wanted = _distinct(images)
    done = Extraction()
    with locked(target), _evaluating(encoder.to(device)):
        if (target / HEADER_FILE).exists():
            done.dropped = drop_damaged(target) if verify else 0
            store = FeatureStore(target)
            store.matches(encoder, transform)
            header = Header.load(target)
            done.present = sum(image.id in store for image in wanted)
            wanted = [image for image in wanted if image.id not in store]
        else:
            header = _header(encoder, transform, device)
        _check_room(target, header, len(wanted), progress)
        bar = progress_bar(len(wanted), done.present) if progress and wanted else nullcontext(_silent)
        with FeatureJournal(target, header) as journal, bar as advance:
            extractor = _Extractor(encoder, transform, device, batch_size, journal)
            extractor.run(wanted, workers or min(16, os.cpu_count() or 1), done, advance)
    return done


class _Extractor:
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
                    pixels = [found for found in decoded if isinstance(found, Tensor)]
                    ids = [batch[i].id for i, found in enumerate(decoded) if isinstance(found, Tensor)]
                    if pixels:
                        writes.append(writer.submit(self._write, ids, *self._encode(pixels)))
                    while len(writes) > backlog:
                        writes.popleft().result()
                    done.stored += len(pixels)
                    pairs = zip(batch, decoded, strict=True)
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
            return self.transform(open_image(path))
        except ImageError as error:
            return error

    def _encode(self, pixels: list[Tensor]) -> tuple[Tensor, Tensor]:
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

    def _write(self, ids: list[int | str], regions: Tensor, finite: Tensor) -> None:
        usable = finite.tolist()
        if not all(usable):
            raise DataError(
                f"the regions of image {ids[usable.index(False)]!r} are not finite numbers, or too large for half "
                "precision (65,504): choose another layer or other weights of the encoder"
            )
        self.journal.add(ids, regions.cpu().numpy())


def _folder(folder: str | os.PathLike[str]) -> Path:
    target = located(os.fspath(folder))
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"'{target}' cannot be made into a folder: {error.strerror}. Choose another."
        ) from None
    if not (target / HEADER_FILE).exists() and any(target.glob("shard-*.f16")):
        raise DataError(
            f"'{target}' holds shards of features, but no {HEADER_FILE} that says what they are: "
            "delete the folder or choose another."
        )
    return target


def _distinct(images: Sequence[CaptionedImage]) -> list[CaptionedImage]:
    """Every image once; features are filed under the id alone, so an id must mean one image."""
    by_id: dict[int | str, CaptionedImage] = {}
    for image in images:
        other = by_id.setdefault(image.id, image)
        if other.path != image.path:
            raise DataError(
                f"'{other.path}' and '{image.path}' have the same id {image.id!r}, under which only one can "
                "be stored: give every image of the data an id of its own."
            )
    return list(by_id.values())


def _header(encoder: Encoder, transform: ImageTransform, device: str | torch.device) -> Header:
    """Header of a new store; a blank image shows what the encoder makes of this transform."""
    blank = torch.zeros(1, 3, transform.height, transform.width, dtype=torch.uint8, device=device)
    vectors, grid = encoder(blank)
    return Header.new(feature_key(encoder, transform), grid, vectors.shape[2])


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def _check_room(folder: Path, header: Header, images: int, report: bool) -> None:
    """Say how large the store will be, and raise a DataError if the disk has less room."""
    needed = images * (header.image_bytes + ENTRY.itemsize + 32)  # 32: about what an id takes
    free = shutil.disk_usage(folder).free
    rows, cols = header.grid
    size = f"{images:,} images of {rows}×{cols}×{header.region_size} numbers take {_readable(needed)}"
    if needed > free:
        raise DataError(
            f"{size}, but the disk of '{folder}' has {_readable(free)} left: make room, or choose a folder "
            "on another disk, another layer, or a smaller image size."
        )
    if report and images:
        print(f"{size} in '{folder}' ({_readable(free)} free)", file=sys.stderr)


def _readable(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


def _silent(images: int) -> None:
    """In place of the progress bar."""
