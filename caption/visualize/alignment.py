"""The alignment matrix: which region each word was read from (after Bahdanau et al. 2015, figure 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from caption.visualize.light import scale_of

if TYPE_CHECKING:
    from caption.result import Caption


def alignment_matrix(ax: Axes, caption: Caption) -> Axes:
    """Draw α as words x regions: the darker, the more attention; one scale, stated under the matrix.

    Regions run row by row through the grid, from the upper left cell; a line parts one row from the next.

    Args:
        ax: drawn on and returned.
        caption: T >= 1 words over a grid of rows x cols.

    Raises:
        ValueError: the caption has no words.
    """
    steps, rows, cols = caption.weights.shape
    if steps == 0:
        raise ValueError("a caption without words has no alignment to draw")
    scale = scale_of(caption.weights)
    matrix = caption.weights.reshape(steps, rows * cols)
    ax.imshow(matrix, cmap="Greys", vmin=scale.low, vmax=scale.high, aspect="auto", interpolation="nearest")
    for column in np.arange(cols, rows * cols, cols):
        ax.axvline(column - 0.5, color="0.6", linewidth=0.5)
    ax.set_yticks(range(steps))
    ax.set_yticklabels(caption.words, parse_math=False)
    ax.set_xticks([row * cols for row in range(rows)])
    ax.set_xticklabels([str(row + 1) for row in range(rows)])
    ax.set_xlabel(f"region, by row of the grid; white α = {scale.low:.2g}, black α = {scale.high:.2g}")
    return ax
