"""The silhouettes of Shapes as coverage masks: the part of each pixel that a shape fills."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

SHAPES = ("circle", "square", "triangle", "star", "cross")

# A pixel is sampled at GRID x GRID points, so the values of a mask are 0 to FULL.
GRID = 8
FULL = GRID * GRID

# A pixel filled less than this is not part of the shape and does not widen its box.
VISIBLE = FULL // 4


@cache
def silhouette(shape: str, size: int) -> np.ndarray:
    """The mask of a shape (height, width), uint8, 0 (outside) to `FULL` (inside).

    The mask is cropped to the visible pixels, so its height and width are those of the shape's tight box. It is shared
    between calls and therefore read-only.

    Args:
        shape: one of `SHAPES`.
        size: diameter in pixels before cropping.
    """
    steps = (np.arange(size * GRID) + 0.5) / (size * GRID) * 2 - 1
    inside = _inside(shape, steps[None, :], steps[:, None])
    filled = inside.reshape(size, GRID, size, GRID).sum(axis=(1, 3))
    filled[filled < VISIBLE] = 0
    rows, columns = np.flatnonzero(filled.any(axis=1)), np.flatnonzero(filled.any(axis=0))
    mask = filled[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].astype(np.uint8)
    mask.flags.writeable = False
    return mask


def _inside(shape: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether points of the square [-1, 1]² belong to the shape; y points down."""
    if shape == "circle":
        return x * x + y * y <= 1
    if shape == "square":
        # Smaller than the circle's diameter, so that the area does not reveal the shape.
        return np.maximum(abs(x), abs(y)) <= 0.88
    if shape == "cross":
        return (np.minimum(abs(x), abs(y)) <= 0.3) & (np.maximum(abs(x), abs(y)) <= 0.95)
    if shape == "triangle":
        return (y <= 0.8) & (abs(x) <= (y + 1) * 0.56)
    return _inside_polygon(_star_corners(), x, y)


def _star_corners(points: int = 5, inner: float = 0.45) -> list[tuple[float, float]]:
    corners = []
    for k in range(2 * points):
        radius = 1.0 if k % 2 == 0 else inner
        angle = math.pi * k / points
        # Rounded, so that the last bit of a platform's sine does not decide about a pixel.
        corners.append((round(radius * math.sin(angle), 9), round(-radius * math.cos(angle), 9)))
    return corners


def _inside_polygon(corners: list[tuple[float, float]], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Even-odd rule: a point is inside if a ray from it crosses the outline an odd number of times."""
    inside = np.zeros(np.broadcast_shapes(x.shape, y.shape), dtype=bool)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        if y0 == y1:
            continue
        crosses = ((y0 <= y) != (y1 <= y)) & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
        inside ^= crosses
    return inside
