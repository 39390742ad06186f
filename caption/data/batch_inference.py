"""From many photos to regions: files are decoded in threads while earlier batches are encoded.

However many photos there are, only a few batches are in memory. Encoding and searching stay in the caller's thread,
because each uses all processors.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from caption.core.box import Box
from caption.core.errors import ImageError, UserError
from caption.core.regions import Views
from caption.core.runtime.prefetch import prefetch
from caption.data.decoding import open_image
from caption.data.resize import ImageTransform
from caption.encoders.base import Encoder

if TYPE_CHECKING:
    from caption.data.decoding import Photo

BATCH = 128
"""Photos encoded and searched at once. A search step has a fixed cost, which a large batch shares."""
AHEAD = 2
"""Batches that are decoded, or being decoded, while one is encoded."""


class DecodedPhoto(NamedTuple):
    """A photo as the encoder's input."""

    pixels: Tensor
    """(3, H, W) uint8."""
    box: Box
    """The part of the photo that the pixels show."""
    photo: Photo
    """The photo for the caption: the path or Pillow image itself, or the image decoded from anything else."""


def decode(photo: Photo, transform: ImageTransform) -> DecodedPhoto:
    """Read a photo and transform it. Raises an ImageError if the photo cannot be read."""
    # An open file may be closed, and an array changed, before the caption is drawn.
    kept = photo if isinstance(photo, (str, os.PathLike, Image.Image)) else open_image(photo)
    pixels, width, height = transform.read(kept)
    return DecodedPhoto(pixels, transform.box(width, height), kept)


def decode_ahead(
    photos: Iterable[Photo], transform: ImageTransform, batch_size: int = BATCH, workers: int | None = None
) -> Generator[list[tuple[Photo, DecodedPhoto | ImageError]], None, None]:
    """Decode photos in threads, `AHEAD` batches before they are needed.

    Args:
        photos: see `Captioner.describe`; taken a few batches ahead.
        transform: makes the encoder's input of a photo.
        batch_size: photos in a batch.
        workers: number of threads; None = one per processor, at most 16.

    Yields:
        batches in the order of the photos: each photo with its pixels, or with the reason why it cannot be read.
    """
    with closing(
        prefetch(lambda photo: decode(photo, transform), photos, AHEAD * batch_size, workers)
    ) as decoded:
        while batch := list(islice(decoded, batch_size)):
            yield batch


@torch.no_grad()
def encode(encoder: Encoder, decoded: Sequence[DecodedPhoto], device: torch.device) -> Views:
    """Regions of B > 0 photos, without gradients, by an encoder in evaluation mode on `device`.

    Raises:
        UserError: the transform keeps the photos' proportions, which differ.
    """
    pixels = [photo.pixels for photo in decoded]
    if any(of_photo.shape != pixels[0].shape for of_photo in pixels):
        raise UserError(
            "this model keeps the proportions of a photo, so photos of different proportions do not fit in one batch: "
            "give photos of the same proportions, or one at a time (batch size 1)"
        )
    return encoder(torch.stack(pixels).to(device))
