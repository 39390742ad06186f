"""Pixels of any kind as RGB: the modes of Pillow's images, arrays and tensors. The rules are those of `open_image`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image

from caption.core.errors import ImageError

STRIP_PIXELS = 200_000
"""Images are converted in strips of this size: only the result takes as much memory as the image, and strips stay in
the processor's cache (a third faster than strips of 4 million)."""
CHANNELS = (1, 3, 4)
"""Numbers of channels: grey, RGB and RGBA."""


def to_rgb(image: Image.Image) -> Image.Image:
    """An image converted to RGB, with its colour profile.

    Raises:
        ValueError: Pillow cannot convert the mode.
    """
    low, high = _range(image) if image.mode in ("I", "F") else (0.0, 0.0)
    rgb = Image.new("RGB", image.size)
    if "icc_profile" in image.info:  # the page embeds it with the photo
        rgb.info["icc_profile"] = image.info["icc_profile"]
    for top, strip in _strips(image):
        rgb.paste(_converted(strip, low, high), (0, top))
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


def image_of_array(source: Any) -> Image.Image:
    """An array or tensor of pixels as a Pillow image.

    Args:
        source: (H, W) grey; (H, W, C) or (C, H, W) with C = 1, 3 (RGB) or 4 (RGBA). Whole numbers are 0 to 255, floats
            and booleans 0 to 1. Where both orders fit, channels are first in a tensor and last in an array.

    Raises:
        ImageError: it has another shape or other values, such as normalised pixels.
    """
    is_tensor = isinstance(source, torch.Tensor)
    pixels = source.detach().cpu().float().numpy() if is_tensor and source.dtype is torch.bfloat16 else None
    if pixels is None:
        pixels = source.detach().cpu().numpy() if is_tensor else np.asarray(source)
    name = f"{'tensor' if is_tensor else 'array'} of shape {tuple(pixels.shape)} and type {pixels.dtype}"
    if pixels.ndim == 3:
        first, last = pixels.shape[0] in CHANNELS, pixels.shape[2] in CHANNELS
        if first and (is_tensor or not last):
            pixels = pixels.transpose(1, 2, 0)
    if pixels.size == 0 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in CHANNELS)):
        raise ImageError(
            f"{name} is not an image: give (H, W), (H, W, 3) or (3, H, W), and several images as a list."
        )
    if pixels.dtype.kind not in "buif":
        raise ImageError(f"{name} is not an image: give whole numbers from 0 to 255, or floats from 0 to 1.")
    top = 1 if pixels.dtype.kind in "bf" else 255
    low, high = pixels.min(), pixels.max()
    if not (low >= 0 and high <= top):  # NaN must fail, too
        raise ImageError(
            f"{name} has values from {float(low):.3g} to {float(high):.3g}: give whole numbers from 0 to 255, or "
            "floats from 0 to 1, before any normalisation."
        )
    levels = np.rint(pixels.astype(np.float64) * 255) if top == 1 else pixels
    levels = levels.astype(np.uint8)
    return Image.fromarray(levels[..., 0] if levels.ndim == 3 and levels.shape[2] == 1 else levels)
