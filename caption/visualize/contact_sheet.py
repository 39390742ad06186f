"""The contact sheet: many photos, each beside its attention map, with its caption beneath."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from caption.data.decoding import open_image
from caption.visualize.figure import new_figure
from caption.visualize.layout import GAP, MARGIN, NARROWEST, add_axes
from caption.visualize.overlay import draw_scale, overlay, photos_of, show_photo
from caption.visualize.styles import Look, LookOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from caption.data.decoding import Photo
    from caption.result import Caption

# Inches.
SIDE = 1.5  # of the square that a photo is fitted into
PAIR = 2 * SIDE + GAP
TEXT = 0.55  # three lines under the pair
LEGEND = 0.4


def contact_sheet(
    captions: Sequence[Caption],
    images: Sequence[Photo] | None = None,
    *,
    columns: int = 3,
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw each photo beside the maximum of its attention maps, with the caption beneath, on one scale.

    Args:
        captions: at least one.
        images: their photos, in the same order; by default those that the captions carry.
        columns: pairs of pictures in a row.
        look: see `plot_caption`.

    Raises:
        ValueError: no captions, not one photo each, columns below 1, no such style.
        caption.errors.ImageError: a photo cannot be opened.
    """
    photos = photos_of(captions, images)
    if columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    maps = [summary_map(caption) for caption in captions]
    signed = any(caption.properties.signed for caption in captions)
    scale = Look(**look).scale_of(*maps, signed=signed)
    columns = min(columns, len(captions))
    height = math.ceil(len(captions) / columns) * (SIDE + TEXT + GAP) + LEGEND + 2 * MARGIN
    size = max(columns * (PAIR + 2 * GAP) + 2 * MARGIN, NARROWEST), height
    fig = new_figure(size)
    for index, (caption, photo, weights) in enumerate(zip(captions, photos, maps, strict=True)):
        row, column = divmod(index, columns)
        left, top = MARGIN + column * (PAIR + 2 * GAP), MARGIN + row * (SIDE + TEXT + GAP)
        upright = open_image(photo)
        show_photo(add_axes(fig, size, (left, top, SIDE, SIDE), anchor="SE"), upright)
        ax = add_axes(fig, size, (left + SIDE + GAP, top, SIDE, SIDE), anchor="SW")
        overlay(ax, weights, caption.box, upright, scale, seen=caption.seen, **look)
        lines = "\n".join(textwrap.wrap(str(caption), 48, max_lines=3, placeholder=" …"))
        across, down = (left + PAIR / 2) / size[0], 1 - (top + SIDE + 0.06) / height
        fig.text(across, down, lines, ha="center", va="top", fontsize=8, parse_math=False)
    legend = add_axes(fig, size, (MARGIN + 0.1, height - LEGEND - MARGIN + 0.14, 1.1, 0.12))
    draw_scale(legend, scale, **look)
    note = "max of α over the words, one scale for all photos"
    note += "; orange above 0, blue below" if signed else ""
    legend.text(1.2, 0.5, note, transform=legend.transAxes, va="center", fontsize=7)
    return fig


def summary_map(caption: Caption) -> np.ndarray:
    """(rows, cols) float32: the largest weight of each cell over the words, by magnitude if signed; 0 without words."""
    weights = caption.weights
    if not caption.words:
        return np.zeros(weights.shape[1:], np.float32)
    size = np.abs(weights) if caption.properties.signed else weights
    return np.take_along_axis(weights, size.argmax(axis=0)[None], axis=0)[0]
