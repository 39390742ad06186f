"""Drawing a Shapes scene: smooth noise with the silhouettes blended on top.

All arithmetic is in whole numbers, so the pixels are the same on every platform.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image

from caption.data.shapes.scene import Scene
from caption.data.shapes.silhouettes import FULL, silhouette

# Octaves of the texture: cells per side, and the largest change of brightness (of 0 to 255).
_OCTAVES = ((4, 48), (13, 28))
_TINT = 36  # largest difference between the channels of the background


def render(scene: Scene) -> Image.Image:
    """The scene as an RGB image of `size` x `size` pixels; equal scenes give equal pixels."""
    canvas = _background(scene.size, scene.seed)
    for thing in scene.objects:
        left, top, right, bottom = thing.box
        cover = silhouette(thing.shape, thing.size).astype(np.int64)[:, :, None]
        colour = np.array(thing.rgb)
        under = canvas[top:bottom, left:right]
        canvas[top:bottom, left:right] = (under * (FULL - cover) + colour * cover + FULL // 2) // FULL
    return Image.fromarray(canvas.astype(np.uint8))


def _background(size: int, seed: int) -> np.ndarray:
    """(size, size, 3) int64: a dim tint plus smooth noise, darker than white and less saturated than the colours."""
    generator = np.random.default_rng([seed, 1])
    tint = 70 + (generator.random(3) * _TINT).astype(np.int64)
    canvas = np.broadcast_to(tint, (size, size, 3)).copy()
    for cells, swing in _OCTAVES:
        knots = ((generator.random((cells + 1, cells + 1)) * 2 - 1) * swing).astype(np.int64)
        weights, scale = _interpolation(cells, size)
        canvas += (weights @ knots @ weights.T // scale**2)[:, :, None]
    return np.clip(canvas, 0, 255)


@lru_cache(maxsize=8)
def _interpolation(cells: int, size: int) -> tuple[np.ndarray, int]:
    """(size, cells + 1) weights of linear interpolation from knots to pixels, and the sum of a row."""
    scale = 2 * size
    position = (2 * np.arange(size) + 1) * cells  # of pixel centres, in knots times scale
    knot, offset = np.divmod(position, scale)
    weights = np.zeros((size, cells + 1), dtype=np.int64)
    weights[np.arange(size), knot] = scale - offset
    weights[np.arange(size), knot + 1] = offset
    return weights, scale
