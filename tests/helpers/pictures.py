"""Pictures for the tests of decoding and resizing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def corners(height: int = 24, width: int = 40) -> np.ndarray:
    """(H, W, 3) uint8 with one colour per quarter, so that every rotation or flip changes it."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2] = (255, 0, 0)
    pixels[: height // 2, width // 2 :] = (0, 255, 0)
    pixels[height // 2 :, : width // 2] = (0, 0, 255)
    return pixels


def noise(height: int = 120, width: int = 160) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def scene(width: int, height: int) -> Image.Image:
    """Smooth, without symmetry, so that a shift or a turn is seen."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    channels = [np.sin(7 * x + 2 * y), np.cos(3 * x - 5 * y), np.sin(4 * x * y + 2 * x)]
    return Image.fromarray((127.5 + 127 * np.stack(channels, -1)).astype(np.uint8))
