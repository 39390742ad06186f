"""Images that are already in memory as arrays or tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image

from caption.core.errors import ImageError

CHANNELS = (1, 3, 4)
"""Of a grey image, RGB and RGBA."""


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
