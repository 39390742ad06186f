"""The alignment matrix (Bahdanau et al. 2015, figure 3): a row for each word, and its weights side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from caption.results.caption import Caption
from caption.visualize.layout import PAGE, new_figure
from caption.visualize.scale import scale_of

CELL, MARGIN = 0.2, 1.0
"""Inches: the row of a word, and the room for the names of columns and a title."""


def plot_matrix(caption: Caption) -> Figure:
    """Draw the weights of all words as a matrix: words × regions, row after row of the grid.

    Below it, if the caption has it, the self-attention of a Transformer decoder: for each layer and head, a row for
    each predicted word, a column for each word fed so far. The lighter a cell, the more weight, as in Bahdanau's
    figure: black is 0, white the largest weight of the caption, or 1 in self-attention. Signed weights are orange above
    0 and blue below.

    Args:
        caption: T words with their weights; `Caption.with_map` gives one with a single map.

    Raises:
        ValueError: the caption has no words.
    """
    steps, rows, cols = caption.weights.shape
    if not steps:
        raise ValueError("a caption without words has no matrix to draw")
    layers = caption.self_attention
    heads, height = max(map(len, layers), default=1), CELL * steps + MARGIN
    fig = new_figure((max(PAGE, heads * height), height * (1 + len(layers))))
    places = fig.add_gridspec(1 + len(layers), heads)
    scale = scale_of(caption.weights, signed=caption.properties.signed)
    title = f"α of {rows}×{cols} regions, row after row of the grid; up to {scale.high:.2g}"
    ax = _draw(
        fig.add_subplot(places[0, :]), caption.weights.reshape(steps, -1), caption.words, title, aspect="auto",
        cmap="PuOr_r" if scale.signed else "gray", vmin=scale.low, vmax=scale.high,
    )  # fmt: skip
    ax.set_xticks((np.arange(rows) + 0.5) * cols - 0.5, [f"row {row + 1}" for row in range(rows)], fontsize=7)
    for row in range(1, rows):
        ax.axvline(row * cols - 0.5, color="0.7", linewidth=0.6)
    fed = ["(start)", *caption.words[:-1]]
    for layer, of_layer in enumerate(layers):
        for head, weights in enumerate(of_layer):
            title = f"layer {layer}, head {head}: words fed so far"
            ax = fig.add_subplot(places[1 + layer, head])
            _draw(ax, weights, caption.words if head == 0 else [], title, cmap="gray", vmin=0, vmax=1)
            ax.set_xticks(range(steps), fed, fontsize=7, rotation=90, parse_math=False)
    fig.set_layout_engine("constrained")
    return fig


def _draw(ax: Axes, weights: np.ndarray, words: Sequence[str], title: str, **options: Any) -> Axes:
    ax.imshow(weights, interpolation="nearest", **options)
    ax.set_yticks(range(len(words)), words, fontsize=8, parse_math=False)
    ax.set_title(title, fontsize=8)
    return ax
