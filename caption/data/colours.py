"""Pixels of any kind to RGB; the rules are those of `caption.data.images.open_image`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from PIL import Image

from caption.errors import ImageError

TILE = 2048
"""Side of the tiles in which the range of an image is found."""


def rgb_converter(image: Image.Image, name: str) -> Callable[[Image.Image], Image.Image]:
    """A function from parts of an image to RGB; see `open_image` for the rules."""
    low, high = _range(image) if image.mode in ("I", "F") else (0.0, 0.0)

    def convert(part: Image.Image) -> Image.Image:
        if part.mode.startswith("I;16"):
            return Image.fromarray((np.asarray(part) >> 8).astype(np.uint8)).convert("RGB")
        if part.mode in ("I", "F"):
            return Image.fromarray(_scaled_to_bytes(np.asarray(part), low, high)).convert("RGB")
        try:
            if part.has_transparency_data:
                white = Image.new("RGBA", part.size, (255, 255, 255, 255))
                return Image.alpha_composite(white, part.convert("RGBA")).convert("RGB")
            return part if part.mode == "RGB" else part.convert("RGB")
        except ValueError as error:
            raise ImageError(f"'{name}' is of mode {part.mode}: {error}. Save it as RGB.") from error

    return convert


def _range(image: Image.Image) -> tuple[float, float]:
    """The least and the greatest finite value of 32-bit greyscale; zeros if there is none."""
    low, high = math.inf, -math.inf
    for y in range(0, image.height, TILE):
        for x in range(0, image.width, TILE):
            part = image.crop((x, y, min(x + TILE, image.width), min(y + TILE, image.height)))
            values = np.asarray(part, dtype=np.float64)
            finite = values[np.isfinite(values)]
            if finite.size:
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 0.0)


def _scaled_to_bytes(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """32-bit greyscale (H, W) as uint8 (H, W), by the rule in `open_image`; `low` and `high` are the image's range."""
    unknown = np.isnan(values)
    real = np.nan_to_num(np.asarray(values, dtype=np.float64), posinf=high, neginf=low)
    if low >= 0 and high <= 1 and values.dtype.kind == "f":
        scaled = real * 255
    elif low >= 0 and high <= 255:
        scaled = real
    elif low >= 0 and high <= 65535:
        scaled = np.floor(real / 256)
    else:
        scaled = (real - low) / ((high - low) or 1.0) * 255
    return np.where(unknown, 0, np.rint(scaled)).astype(np.uint8)
