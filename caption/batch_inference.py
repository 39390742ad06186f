"""Many photos to captions, as a stream: files are decoded while images are encoded and captions searched for.

Threads decode files ahead (Pillow lets go of the interpreter meanwhile); the caller's thread encodes a batch and
searches for its captions. No more than a few batches are in memory, however many photos there are.

A thread of its own for the search was tried: encoder and search each take all processors of a CPU, and side by side
took a tenth longer than one after the other.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from caption.data.images import Box, ImageTransform, open_image
from caption.errors import ImageError
from caption.eval_mode import eval_mode
from caption.regions import Views
from caption.result import Caption
from caption.search import Search

if TYPE_CHECKING:
    from caption.captioner import Captioner, Photo

BATCH = 128
"""Photos searched at once: every step of a search costs the same work of its own, for few photos and for many."""
AHEAD = 2
"""Batches that are decoded, or being decoded, while one is encoded."""


class Decoded(NamedTuple):
    """A photo as the encoder wants it."""

    pixels: Tensor
    """(3, H, W) uint8."""
    box: Box
    """What the pixels show of the photo."""


def describe_each(
    captioner: Captioner,
    photos: Iterable[Photo],
    search: Search | None = None,
    batch_size: int = BATCH,
    workers: int | None = None,
) -> Iterator[Caption | ImageError]:
    """Caption photos one after another, as they come.

    The captioner is in evaluation mode meanwhile. Closing the iterator stops the work.

    Args:
        captioner: with its weights, on any device.
        photos: paths or PIL images; taken a few batches ahead.
        search: None = the search the model was saved with.
        batch_size: photos searched at once.
        workers: threads that decode; None = one per processor, 16 at most.

    Yields:
        for every photo, in their order, its caption, or why it cannot be decoded.
    """
    decoders = ThreadPoolExecutor(workers or min(16, os.cpu_count() or 1))
    try:
        with eval_mode(captioner):
            for batch, decoded in _decode(captioner.transform, photos, batch_size, decoders):
                good = [each for each in decoded if not isinstance(each, ImageError)]
                views = _encode(captioner, [each.pixels for each in good]) if good else None
                yield from _search(captioner, search, batch, decoded, views)
    finally:
        decoders.shutdown(cancel_futures=True)


def _decode(
    transform: ImageTransform, photos: Iterable[Photo], batch_size: int, decoders: ThreadPoolExecutor
) -> Iterator[tuple[list[Photo], list[Decoded | ImageError]]]:
    """Batches in order, decoded ahead of their use."""

    def decode(photo: Photo) -> Decoded | ImageError:
        try:
            image = open_image(photo)
            return Decoded(transform(image), transform.box(*image.size))
        except ImageError as error:
            return error

    remaining = iter(photos)
    ahead: deque[tuple[list[Photo], list[Future[Decoded | ImageError]]]] = deque()
    while True:
        if batch := list(islice(remaining, batch_size)):
            ahead.append((batch, [decoders.submit(decode, photo) for photo in batch]))
        if not ahead:
            return
        if len(ahead) > AHEAD or not batch:
            first, futures = ahead.popleft()
            yield first, [future.result() for future in futures]


@torch.no_grad()
def _encode(captioner: Captioner, pixels: Sequence[Tensor]) -> Views:
    return captioner.encoder(torch.stack(list(pixels)).to(captioner.device))


def _search(
    captioner: Captioner,
    search: Search | None,
    photos: Sequence[Photo],
    decoded: Sequence[Decoded | ImageError],
    views: Views | None,
) -> list[Caption | ImageError]:
    """Captions in the places of the photos that could be decoded, the errors of the others in theirs."""
    captions: Iterator[Caption] = iter(())
    if views is not None:
        good = [
            (photo, each) for photo, each in zip(photos, decoded, strict=True) if isinstance(each, Decoded)
        ]
        boxes = [each.box for _, each in good]
        found = captioner.generate(views, search)
        captions = captioner.captions(found, captioner.grids(views), boxes, [photo for photo, _ in good])
    return [next(captions) if isinstance(each, Decoded) else each for each in decoded]
