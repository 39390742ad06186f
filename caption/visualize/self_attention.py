"""Figures of self-attention over words. Self-attention over regions is drawn as captions are, see
`caption.analysis.self_attention.RegionMaps.of_cells`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from caption.visualize.layout import new_figure

if TYPE_CHECKING:
    from caption.analysis.self_attention import WordMaps

CELL, MARGIN = 0.2, 0.9
"""Inches."""


def word_matrix(ax: Axes, maps: WordMaps, layer: int, head: int) -> Axes:
    """Draw one head's weights as a matrix: a row for each word that is said, a column for each word fed so far.

    The darker a cell, the more weight; white is 0 and black is 1.

    Args:
        ax: drawn on and returned.
        maps: of a caption with words.
        layer, head: counted from 0.
    """
    ax.imshow(maps.layers[layer][head], cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
    ax.set_xticks(range(len(maps.fed)))
    ax.set_xticklabels(maps.fed, rotation=90, fontsize=7, parse_math=False)
    ax.set_yticks(range(len(maps.said)))
    ax.set_yticklabels(maps.said, fontsize=7, parse_math=False)
    ax.set_title(f"layer {layer}, head {head}", fontsize=8)
    return ax


def plot_word_maps(maps: WordMaps) -> Figure:
    """Draw the self-attention of a Transformer decoder's words: a row of matrices for each layer, one for each head.

    Raises:
        ValueError: the caption has no words.
    """
    if not maps.said:
        raise ValueError("a caption without words has no self-attention to draw")
    layers, heads = len(maps.layers), max(map(len, maps.layers))
    side = CELL * len(maps.said)
    fig = new_figure((heads * side + 2 * MARGIN, layers * (side + MARGIN)))
    axes = np.asarray(fig.subplots(layers, heads, squeeze=False))
    for (layer, head), ax in np.ndenumerate(axes):
        if head < len(maps.layers[layer]):
            word_matrix(ax, maps, layer, head)
            ax.label_outer()
        else:
            ax.set_axis_off()
    fig.supylabel("the word that is said", fontsize=8)
    fig.supxlabel("the words fed so far", fontsize=8)
    fig.set_layout_engine("constrained")
    return fig
