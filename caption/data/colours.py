"""Pixels of any kind to RGB; the rules are those of `caption.data.decoding.open_image`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from PIL import Image

from caption.core.errors import ImageError

STRIP_PIXELS = 200_000
"""Images are converted in strips of this size: only the result takes as much memory as the image, and strips stay in
the processor's cache (a third faster than strips of 4 million)."""


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    """An image in RGB, with its colour profile; itself if it is RGB already.

    Raises:
        ImageError: Pillow cannot convert the mode.
    """
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    low, high = _range(image) if image.mode in ("I", "F") else (0.0, 0.0)
    rgb = Image.new("RGB", image.size)
    if "icc_profile" in image.info:  # the page embeds it with the photo
        rgb.info["icc_profile"] = image.info["icc_profile"]
    try:
        for top, strip in _strips(image):
            rgb.paste(_converted(strip, low, high), (0, top))
    except ValueError as error:
        raise ImageError(f"'{name}' is of mode {image.mode}: {error}. Save it as RGB.") from error
    return rgb


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """The rows of an image in strips, each with the number of its first row."""
    rows = max(1, STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _converted(part: Image.Image, low: float, high: float) -> Image.Image:
    """A part of an image in RGB; `low` and `high` are the range of 32-bit greyscale."""
    if part.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(part) >> 8).astype(np.uint8)).convert("RGB")
    if part.mode in ("I", "F"):
        return Image.fromarray(_scaled_to_bytes(np.asarray(part), low, high)).convert("RGB")
    if part.has_transparency_data:
        white = Image.new("RGBA", part.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, part.convert("RGBA")).convert("RGB")
    return part.convert("RGB")


def _range(image: Image.Image) -> tuple[float, float]:
    """The least and the greatest finite value of 32-bit greyscale; zeros if there is none."""
    low, high = math.inf, -math.inf
    for _, strip in _strips(image):
        values = np.asarray(strip, dtype=np.float64)
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
