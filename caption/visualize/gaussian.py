"""Maps smoothed as in the published figures: enlarged sixteen times, then blurred by a Gaussian of 20 pixels."""

from __future__ import annotations

import numpy as np

ENLARGED = 16
"""Pixels of a cell."""
DEVIATION = (20**2 / ENLARGED**2 + 1 / 6) ** 0.5
"""Of the Gaussian, in cells. The linear interpolation that enlarges the map adds 1/6 of a cell to the variance."""
REACH = 6
"""Cells on each side that are averaged."""


def enlarged(maps: np.ndarray) -> np.ndarray:
    """Maps (..., rows, cols) -> (..., 16 rows, 16 cols): every pixel is a Gaussian mean of the cells around it.

    Beyond its edges a map is continued by its mirror image, which keeps its mean. Away from the edges this is
    `skimage.transform.pyramid_expand(map, upscale=16, sigma=20)`, with which the authors' notebook draws, to 0.3 % of
    its highest value. At the edges skimage mirrors the centres of the outermost cells, which loses weight there.
    """
    rows, cols = (_means(cells) for cells in maps.shape[-2:])
    return rows @ maps @ cols.T


def _means(cells: int) -> np.ndarray:
    """(16 cells, cells) the share of each cell in each pixel."""
    pixels = (np.arange(ENLARGED * cells)[:, None] + 0.5) / ENLARGED - 0.5
    places = np.arange(-REACH, cells + REACH)
    shares = np.exp(-0.5 * ((pixels - places) / DEVIATION) ** 2)
    mirrored = places % (2 * cells)
    means = np.zeros((len(pixels), cells))
    np.add.at(means.T, np.minimum(mirrored, 2 * cells - 1 - mirrored), shares.T)
    return means / shares.sum(1, keepdims=True)
