"""Resizing: from an image of any size to the pixels of the model, and the part of the photo that they cover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from PIL import Image

from caption.core.box import Box
from caption.core.errors import DataError
from caption.data.decoding import decoded

if TYPE_CHECKING:
    from caption.data.decoding import Photo

Fit = Literal["squash", "crop", "pad"]

LARGEST_SIDE = 4096
"""Of a model's input, in pixels: 50 MB per photo. No encoder takes more."""

GAP = 3
"""A photo that is reduced first stays at least this many times as large as the output, so that the final resampling
decides."""

PAD_GREY = (128, 128, 128)  # middle grey, which is close to zero after any usual normalisation


class FittedPhoto(NamedTuple):
    """A photo as the input of a model."""

    pixels: torch.Tensor
    """(3, H, W) uint8, RGB."""
    size: tuple[int, int]
    """(width, height) of the photo, upright."""
    box: Box
    """The part of the photo that the pixels show, in its pixels; see `ImageTransform.box`."""
    photo: Photo
    """The photo itself, as it was given."""


@dataclass(frozen=True)
class ImageTransform:
    """Fits an image into a fixed number of pixels, and gives the part of the image that they cover.

    Bilinear with antialiasing. Normalisation is done by the encoder, because it depends on the weights.

    Args:
        size: pixels of the output: one number for a square, or (height, width).
        fit: how an image of another aspect ratio is fitted. "squash" scales both sides to the output, which distorts;
            "crop" scales the image until it fills the output and keeps its centre; "pad" scales it until it fits and
            fills the rest with middle grey on both sides.
        resize: with "crop", the pixels to which the image's shorter side is scaled before its centre is cut out, as in
            Caffe's habit of 256 and 224; None = as few as fill the output, which shows the most.

    Raises:
        DataError: a size below one pixel or above `LARGEST_SIDE`, an unknown fit; `resize` without "crop", below the
            output's sides or above `LARGEST_SIDE`.
    """

    size: int | tuple[int, int] = 224
    fit: Fit = "crop"
    resize: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.size, list):  # from YAML or JSON, which have no tuples
            object.__setattr__(self, "size", tuple(self.size))
        sides = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side <= LARGEST_SIDE for side in sides):
            raise DataError(
                f"image size {self.size!r} is not a size: give pixels, or (height, width), from 1 to {LARGEST_SIDE}."
            )
        if not isinstance(self.fit, str) or self.fit not in get_args(Fit):
            raise DataError(f"image fit {self.fit!r} is unknown: choose one of {', '.join(get_args(Fit))}.")
        fits = isinstance(self.resize, int) and max(sides) <= self.resize <= LARGEST_SIDE
        if self.resize is not None and not (self.fit == "crop" and fits):
            raise DataError(
                f"image resize {self.resize!r} with the fit {self.fit!r}: give it with the fit 'crop' alone, as the "
                f"pixels of the shorter side, from {max(sides)} to {LARGEST_SIDE}."
            )

    @property
    def height(self) -> int:
        """Rows of the output, in pixels."""
        return self.size[0] if isinstance(self.size, tuple) else self.size

    @property
    def width(self) -> int:
        """Columns of the output, in pixels."""
        return self.size[1] if isinstance(self.size, tuple) else self.size

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """The input pixels of a model (3, H, W) uint8, RGB; see `read`."""
        return self.read(image).pixels

    def read(self, photo: Photo) -> FittedPhoto:
        """Decode a photo and fit it.

        Photos many times larger than the output are reduced by whole numbers first (JPEG while it is decoded), and
        stay at least three times as large as the output. This saves memory and time, and changes pixels by rounding.

        Args:
            photo: see `caption.data.decoding.open_image`.

        Raises:
            ImageError: see `open_image`.
        """
        with decoded(photo, self._excess) as (image, size, scale):
            columns, rows = self._content(*size)
            # Pillow crops at fractions of a pixel, so nothing is rounded and the box is exact.
            region = Box(*(edge / scale for edge in self._region(*size)))
            fitted = image.resize((columns, rows), Image.Resampling.BILINEAR, region, reducing_gap=GAP)
        if self.fit == "pad":
            content, fitted = fitted, Image.new("RGB", (self.width, self.height), PAD_GREY)
            fitted.paste(content, ((self.width - columns) // 2, (self.height - rows) // 2))
        # NumPy copies in this thread; torch would use all processors, which other workers need for decoding.
        pixels = torch.from_numpy(np.asarray(fitted).transpose(2, 0, 1).copy())
        return FittedPhoto(pixels, size, self.box(*size), photo)

    def _excess(self, width: int, height: int) -> float:
        """How many times smaller an image may become before it is resized."""
        left, top, right, bottom = self._region(width, height)
        columns, rows = self._content(width, height)
        return min((right - left) / columns, (bottom - top) / rows) / GAP

    def _region(self, width: int, height: int) -> Box:
        """The part of an image that the output shows, without what padding adds."""
        return Box(0.0, 0.0, float(width), float(height)) if self.fit == "pad" else self.box(width, height)

    def box(self, width: int, height: int) -> Box:
        """The part of an image that the output covers, edge to edge.

        Args:
            width: columns of the original image, upright, in pixels.
            height: rows of it.

        Returns:
            The box in pixels of that image. With "pad" it extends beyond the image, as the output does: to negative
            coordinates and beyond the right or lower edge.
        """
        if self.fit == "squash":
            return Box(0.0, 0.0, float(width), float(height))
        if self.resize is not None:
            scale = min(width, height) / self.resize  # original pixels to one output pixel
            left, top = (width - scale * self.width) / 2, (height - scale * self.height) / 2
            return Box(left, top, width - left, height - top)
        if self.fit == "crop":  # the largest centred region with the aspect ratio of the output
            left = max(0.0, width - height * self.width / self.height) / 2
            top = max(0.0, height - width * self.height / self.width) / 2
            return Box(left, top, width - left, height - top)
        columns, rows = self._content(width, height)
        across, down = width / columns, height / rows  # original pixels to one output pixel, after rounding
        left, top = -((self.width - columns) // 2) * across, -((self.height - rows) // 2) * down
        return Box(left, top, left + self.width * across, top + self.height * down)

    def _content(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of the scaled image inside the output, in whole pixels."""
        if self.fit != "pad":
            return self.width, self.height
        if width * self.height > height * self.width:
            return self.width, max(1, round(height * self.width / width))
        return max(1, round(width * self.height / height)), self.height

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for a checkpoint."""
        size = list(self.size) if isinstance(self.size, tuple) else self.size
        return {"size": size, "fit": self.fit} | ({} if self.resize is None else {"resize": self.resize})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ImageTransform:
        """The transform that `to_dict` described.

        Raises:
            DataError: keys are missing or unknown, or values are impossible.
        """
        if set(data) - {"resize"} != {"size", "fit"}:
            raise DataError(
                f"an image transform has 'size' and 'fit', and may have 'resize', not {sorted(data)}: save it again."
            )
        return cls(**data)
