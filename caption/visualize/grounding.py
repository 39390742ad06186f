"""The pointing game as a figure: each mention with its map, the boxes of the object, and the cell pointed at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from caption.analysis.pointing_game import Grounding
from caption.data.decoding import open_image
from caption.visualize.layout import GAP, MARGIN, PAGE, PANEL, TITLE, add_axes, new_figure
from caption.visualize.overlay import overlay, photos_of
from caption.visualize.styles import OverlayOptions, OverlayStyle

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from caption.data.decoding import Photo

COLUMNS = int((PAGE - 2 * MARGIN) / (PANEL + GAP))


def plot_grounding(
    grounding: Grounding,
    most: int = 12,
    *,
    images: Sequence[Photo] | None = None,
    **options: Unpack[OverlayOptions],
) -> Figure:
    """Draw the first mentions: the map of the word over its photo, the boxes of the object, and the most attended cell.

    The title has the word, and whether the cell lies in a box. Each caption has a scale of its own.

    Args:
        grounding: from `ground`.
        most: mentions that are drawn.
        images: the photos of its captions, in the same order; by default those that the captions carry.
        options: see `plot_caption`.

    Raises:
        ValueError: there are no mentions, not one photo for each caption, or most is less than 1.
        caption.errors.ImageError: a photo cannot be opened.
    """
    pointings = grounding.pointings[: max(most, 0)]
    if not pointings:
        raise ValueError("there are no mentions to draw")
    photos = photos_of(grounding.measured, images)
    columns = min(COLUMNS, len(pointings))
    rows = math.ceil(len(pointings) / columns)
    size = columns * (PANEL + GAP) - GAP + 2 * MARGIN, rows * (PANEL + TITLE + GAP) - GAP + 2 * MARGIN
    fig = new_figure(size)
    for number, pointing in enumerate(pointings):
        row, column = divmod(number, columns)
        left, top = MARGIN + column * (PANEL + GAP), MARGIN + row * (PANEL + TITLE + GAP) + TITLE
        ax = add_axes(fig, size, (left, top, PANEL, PANEL))
        caption, word = grounding.measured[pointing.caption], pointing.mention.word
        weights = caption.weights[word]
        cell = np.unravel_index(int(weights.argmax()), weights.shape)
        overlay(
            ax, weights, caption.box, open_image(photos[pointing.caption]),
            OverlayStyle(**options).scale_of(caption.weights, signed=caption.properties.signed), seen=caption.seen,
            location=[int(place) for place in cell], boxes=pointing.mention.boxes, **options,
        )  # fmt: skip
        found = "not in the photo" if not pointing.mention.boxes else "hit" if pointing.hit else "miss"
        ax.set_title(f"{caption.words[word]}: {found}", fontsize=9, pad=3, parse_math=False)
    return fig
