"""One map over one photo, every cell exactly over the pixels it covers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from PIL import Image

from caption.data.images import open_image
from caption.visualize.light import OPACITY, light_ramp
from caption.visualize.photo import Photo

Box = Sequence[float]

PRINT_DPI = 300
"""Of a photo, in axes of the size that they have when it is drawn; a smaller photo keeps its own pixels."""


def overlay(
    ax: Axes,
    weights: np.ndarray,
    box: Box,
    image: Photo,
    vmax: float,
    *,
    vmin: float = 0.0,
    smooth: bool = False,
    cmap: str | Colormap | None = None,
    opacity: float = OPACITY,
    location: Sequence[int] | None = None,
) -> Axes:
    """Draw one word's α over the photo.

    The axes count in the photo's pixels, row 0 on top, and end where the photo ends: cells that padding put
    beyond it are cut off there. What of the photo lies outside the box is dark and hatched: the model never
    saw it.

    Args:
        ax: drawn on and returned; its limits, ticks and aspect are set.
        weights: (rows, cols) α of one word.
        box: (left, top, right, bottom), the part of the photo under the grid, in pixels.
        image: the photo, or its path.
        vmax: the α drawn brightest, to be shared by all panels that are compared.
        vmin: the α drawn darkest.
        smooth: interpolate bilinearly between the centres of neighbouring cells, so over one cell's width,
            instead of drawing the cells themselves.
        cmap: a Matplotlib colour map laid over the photo, `opacity` opaque, in place of light and dark.
        opacity: how much of the photo the layer hides where α is lowest, 0 to 1.
        location: (row, col) of a cell to outline, where hard attention looked.

    Raises:
        ValueError: the weights are no grid, or the opacity is not between 0 and 1.
        caption.errors.ImageError: the photo cannot be opened.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2:
        raise ValueError(f"one word's weights are (rows, cols), not {weights.shape}")
    show_photo(ax, image)
    left, top, right, bottom = box
    ramp = light_ramp(opacity)
    ax.imshow(
        weights,
        cmap=ramp if cmap is None else cmap,
        alpha=None if cmap is None else opacity,
        vmin=vmin,
        vmax=vmax,
        extent=(left, right, bottom, top),
        interpolation="bilinear" if smooth else "nearest",
        interpolation_stage="data",
        aspect="equal",
    )
    _veil_outside(ax, box, opacity)
    if location is not None:
        _outline_cell(ax, weights.shape, box, location)
    return ax


def show_photo(ax: Axes, image: Photo) -> Axes:
    """The photo alone, upright, at its true aspect ratio; the axes count in its pixels."""
    photo = open_image(image)
    width, height = photo.size
    spare = _spare_pixels(photo, ax)
    shown = np.asarray(photo.reduce(spare) if spare > 1 else photo)
    # Where the photo cannot be divided evenly, the last pixels reach beyond its edge, and are cut off there.
    ax.imshow(shown, extent=(0, shown.shape[1] * spare, shown.shape[0] * spare, 0), aspect="equal")
    ax.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def _spare_pixels(photo: Image.Image, ax: Axes) -> int:
    """How many of the photo's pixels, along each side, may become one: Matplotlib converts them all, in every panel."""
    inches = np.array(ax.get_window_extent().size) / ax.figure.dpi
    return max(1, int(np.min(np.array(photo.size) / np.maximum(inches * PRINT_DPI, 1))))


def cell_edges(shape: Sequence[int], box: Box, cell: Sequence[int]) -> tuple[float, float, float, float]:
    """(left, top, right, bottom) of one cell in the photo's pixels.

    Args:
        shape: (rows, cols) of the grid.
        box: the part of the photo under the whole grid.
        cell: (row, col).
    """
    (rows, cols), (left, top, right, bottom), (row, col) = shape, box, cell
    width, height = (right - left) / cols, (bottom - top) / rows
    return left + col * width, top + row * height, left + (col + 1) * width, top + (row + 1) * height


def covers(box: Box, size: tuple[float, float]) -> bool:
    """Whether the box holds the whole of a photo of this (width, height), to half a pixel."""
    left, top, right, bottom = box
    return left <= 0.5 and top <= 0.5 and right >= size[0] - 0.5 and bottom >= size[1] - 0.5


def _veil_outside(ax: Axes, box: Box, opacity: float) -> None:
    left, top, right, bottom = box
    width, height = ax.get_xlim()[1], ax.get_ylim()[0]
    if covers(box, (width, height)):
        return
    left, right = np.clip([left, right], 0, width)
    top, bottom = np.clip([top, bottom], 0, height)
    photo = Outline([(0, 0), (width, 0), (width, height), (0, height), (0, 0)], closed=True)
    # Run the other way round, the box is a hole in the photo's outline.
    seen = Outline([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], closed=True)
    unseen = Outline.make_compound_path(photo, seen)
    ax.add_patch(PathPatch(unseen, facecolor=(0, 0, 0, opacity), edgecolor="none"))
    ax.add_patch(PathPatch(unseen, fill=False, edgecolor=(1, 1, 1, 0.3), hatch="////", linewidth=0))


def _outline_cell(ax: Axes, shape: Sequence[int], box: Box, cell: Sequence[int]) -> None:
    left, top, right, bottom = cell_edges(shape, box, cell)
    # Black under white: one of the two shows on any photo.
    for colour, width in (("black", 2.5), ("white", 1.0)):
        ax.add_patch(
            Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=colour, linewidth=width)
        )
