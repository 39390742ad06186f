"""Plots of a caption: the alignment matrix, and the gate along the sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from caption.visualize.scale import scale_of

if TYPE_CHECKING:
    from caption.result import Caption


def alignment_matrix(ax: Axes, caption: Caption) -> Axes:
    """Draw α as words x regions (after Bahdanau et al. 2015, figure 3), on one scale stated under the matrix.

    The darker a cell, the more attention; signed weights are red above 0 and blue below. Regions run row by row through
    the grid, from the upper left cell; a line separates the rows. For a single map give `caption.with_map(...)`.

    Args:
        ax: drawn on and returned.
        caption: T >= 1 words over a grid of rows x cols.

    Raises:
        ValueError: the caption has no words.
    """
    steps, rows, cols = caption.weights.shape
    if steps == 0:
        raise ValueError("a caption without words has no alignment to draw")
    scale = scale_of(caption.weights, signed=caption.properties.signed)
    cmap, low, high = ("RdBu_r", "blue", "red") if scale.signed else ("Greys", "white", "black")
    matrix = caption.weights.reshape(steps, rows * cols)
    ax.imshow(matrix, cmap=cmap, vmin=scale.low, vmax=scale.high, aspect="auto", interpolation="nearest")
    for column in np.arange(cols, rows * cols, cols):
        ax.axvline(column - 0.5, color="0.6", linewidth=0.5)
    ax.set_yticks(range(steps))
    ax.set_yticklabels(caption.words, parse_math=False)
    ax.set_xticks([row * cols for row in range(rows)])
    ax.set_xticklabels([str(row + 1) for row in range(rows)])
    ax.set_xlabel(f"region, by row of the grid; {low} α = {scale.low:.2g}, {high} α = {scale.high:.2g}")
    return ax


def gate_plot(ax: Axes, caption: Caption) -> Axes:
    """Draw the gate β of each word (Xu et al. 2015, section 4.2.1) as a bar.

    At 0 the image is ignored, at 1 its context vector enters in full.

    Args:
        ax: drawn on and returned.
        caption: with gates.

    Raises:
        ValueError: the model that wrote the caption has no gate.
    """
    if caption.gates is None:
        raise ValueError("this caption was written without a gate")
    steps = range(len(caption.words))
    ax.bar(steps, caption.gates, width=0.7, color="0.45")
    ax.set_xticks(steps)
    ax.set_xticklabels(caption.words, rotation=40, ha="right", rotation_mode="anchor", parse_math=False)
    ax.set(ylim=(0, 1), ylabel="gate β", xlim=(-0.6, max(len(steps), 1) - 0.4))
    ax.spines[["top", "right"]].set_visible(False)
    return ax
