"""The contact sheet: many photos, what was said of each, and where the model looked meanwhile."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from caption.data.images import open_image
from caption.visualize.figure import NotebookFigure, draw_scale
from caption.visualize.light import OPACITY, scale_of
from caption.visualize.overlay import overlay, show_photo
from caption.visualize.photo import Photo, photos_of

if TYPE_CHECKING:
    from caption.result import Caption

Summary = Literal["max", "mean"]

# Inches.
SIDE = 1.5  # of the square that a photo is fitted into
GAP = 0.08
PAIR = 2 * SIDE + GAP
TEXT = 0.55  # three lines under the pair
MARGIN = 0.12
LEGEND = 0.4


def contact_sheet(
    captions: Sequence[Caption],
    images: Sequence[Photo] | None = None,
    *,
    summary: Summary = "max",
    columns: int = 3,
    smooth: bool = False,
    opacity: float = OPACITY,
) -> Figure:
    """Draw each photo beside its own attention map, with the caption beneath; one scale for the whole sheet.

    Args:
        captions: at least one.
        images: their photos, in the same order; by default those that the captions carry.
        summary: "max" lights a cell by the word that looked at it hardest, "mean" by the average word.
        columns: pairs of pictures in a row.
        smooth: interpolate between cells (see `overlay`).
        opacity: how much of the photo is hidden where the map is lowest.

    Raises:
        ValueError: no captions, not one photo each, an unknown summary, columns below 1.
        caption.errors.ImageError: a photo cannot be opened.
    """
    photos = photos_of(captions, images)
    if columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    maps = [summary_map(caption, summary) for caption in captions]
    scale = scale_of(*maps)
    columns = min(columns, len(captions))
    height = math.ceil(len(captions) / columns) * (SIDE + TEXT + GAP) + LEGEND + 2 * MARGIN
    width = max(columns * (PAIR + 2 * GAP) + 2 * MARGIN, 4.6)  # the legend needs 4.6
    fig = NotebookFigure(figsize=(width, height), facecolor="white")
    for index, (caption, photo, weights) in enumerate(zip(captions, photos, maps, strict=True)):
        row, column = divmod(index, columns)
        left, top = MARGIN + column * (PAIR + 2 * GAP), MARGIN + row * (SIDE + TEXT + GAP)
        upright = open_image(photo)
        ax = _add_axes(fig, left, top, SIDE, SIDE, anchor="SE")
        show_photo(ax, upright)
        ax = _add_axes(fig, left + SIDE + GAP, top, SIDE, SIDE, anchor="SW")
        overlay(ax, weights, caption.box, upright, scale.high, vmin=scale.low, smooth=smooth, opacity=opacity)
        _write_sentence(fig, str(caption), left + PAIR / 2, top + SIDE + 0.06)
    legend = _add_axes(fig, MARGIN + 0.1, height - LEGEND - MARGIN + 0.14, 1.1, 0.12)
    draw_scale(legend, scale, opacity=opacity)
    note = f"{summary} of α over the words, one scale for all photos"
    legend.text(1.2, 0.5, note, transform=legend.transAxes, va="center", fontsize=7)
    return fig


def summary_map(caption: Caption, summary: Summary) -> np.ndarray:
    """(rows, cols) float32: for each cell the largest or the mean α over the words; 0 without words.

    Raises:
        ValueError: the summary is neither "max" nor "mean".
    """
    if summary not in ("max", "mean"):
        raise ValueError(f'summary is "max" or "mean", not {summary!r}')
    if not caption.words:
        return np.zeros(caption.weights.shape[1:], np.float32)
    return caption.weights.max(axis=0) if summary == "max" else caption.weights.mean(axis=0)


def _add_axes(fig: Figure, left: float, top: float, width: float, height: float, anchor: str = "C") -> Axes:
    """Empty axes, in inches from the figure's upper left corner."""
    across, down = fig.get_size_inches()
    return fig.add_axes(
        (left / across, 1 - (top + height) / down, width / across, height / down), anchor=anchor
    )


def _write_sentence(fig: Figure, sentence: str, middle: float, top: float) -> None:
    across, down = fig.get_size_inches()
    lines = textwrap.wrap(sentence, 48, max_lines=3, placeholder=" …")
    place = {"x": middle / across, "y": 1 - top / down, "ha": "center", "va": "top"}
    fig.text(s="\n".join(lines), **place, fontsize=8, parse_math=False)
