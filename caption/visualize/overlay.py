"""One attention map over one photo, each cell exactly over the pixels that it covers; and its scale as a bar.

The outermost cells also cover the part that the model has seen beyond the grid, since they are nearest to it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Outline
from matplotlib.transforms import Bbox, TransformedBbox
from PIL import Image

from caption.core.box import BoxLike, cell_box, shares_of
from caption.data.boxes import ObjectMask
from caption.data.photos import open_image
from caption.visualize.scale import Scale
from caption.visualize.styles import STEPS, OverlayOptions, OverlayStyle

if TYPE_CHECKING:
    from caption.data.photos import Photo
    from caption.results.caption import Caption

OUTLINE = (("black", 2.5), ("white", 1.0))  # colour and width in points: one of the two shows on any photo
BOX = (("black", 2.5), ("lime", 1.2))  # of an object
SMOOTH = "hermite"  # exact at the centres of cells, without overshoot, and it reaches no further than the next centre
LUMINANCE = (0.2126, 0.7152, 0.0722, 0.0)  # of red, green and blue: the grey of browsers
ROUNDING = 1e-6  # a gap of fewer cells counts as none
PRINT_DPI = 300
"""Resolution of photos, at the size of their axes when drawn. A photo with fewer pixels keeps them all."""


def photos_of(captions: Sequence[Caption], images: Sequence[Photo] | None) -> list[Photo]:
    """One photo per caption: the images given, else those that the captions carry.

    Raises:
        ValueError: there are no captions, or not one photo for each.
    """
    if not captions:
        raise ValueError("at least one caption is needed")
    photos = [caption.image for caption in captions] if images is None else list(images)
    if len(photos) != len(captions):
        raise ValueError(f"{len(captions)} captions need as many photos, not {len(photos)}")
    missing = [index for index, photo in enumerate(photos) if photo is None]
    if missing:
        raise ValueError(f"captions {missing} carry no photo: pass images=")
    return [photo for photo in photos if photo is not None]


def photo_name(photo: Photo, index: int) -> str:
    """The name of the photo's file, without its folder; its number, counted from `index` 0, if it has none."""
    path = photo if isinstance(photo, (str, os.PathLike)) else getattr(photo, "filename", "")
    return Path(path).name if isinstance(path, (str, os.PathLike)) and path else f"photo {index + 1}"


def photo_names(photos: Sequence[Photo], names: Sequence[str] | None) -> Sequence[str]:
    """The names given, else those of the files.

    Raises:
        ValueError: there is not one name for each photo.
    """
    if names is not None and len(names) != len(photos):
        raise ValueError(f"{len(photos)} photos need as many names, not {len(names)}")
    return [photo_name(photo, index) for index, photo in enumerate(photos)] if names is None else names


def overlay(
    ax: Axes,
    weights: np.ndarray,
    box: BoxLike,
    image: Photo,
    scale: Scale | None = None,
    *,
    seen: BoxLike | None = None,
    location: Sequence[int] | None = None,
    point: Sequence[float] | None = None,
    boxes: Iterable[BoxLike] = (),
    **options: Unpack[OverlayOptions],
) -> Axes:
    """Draw one word's α over the photo.

    The axes count in the photo's pixels, row 0 on top. Cells are cut off at the photo's edge, beyond which padding may
    have put them, and at the edge of the part that the model has seen; if the grid ends before that edge, the outermost
    cells are extended to it. The part that the model did not see is dark and hatched.

    Args:
        ax: drawn on and returned; its limits, ticks and aspect are set.
        weights: (rows, cols) α of one word.
        box: (left, top, right, bottom), the part of the photo under the grid, in pixels.
        image: the photo, or its path.
        scale: to be shared by all panels that are compared, see `OverlayStyle.scale_of`; by default the map's own.
        seen: the part of the photo that the model has seen, in pixels; by default the box.
        location: (row, col) of a cell to outline, such as the one that hard attention chose.
        point: (x, y) in the photo's pixels to mark with a cross.
        boxes: (left, top, right, bottom) in the photo's pixels to outline, such as where an object is.
        options: `style` ("heat", "paper", "glow" or "cells"), `smooth`, `cmap`, `opacity`, see `styles.OverlayStyle`.

    Raises:
        ValueError: the weights are not a grid; there is no such style or colour map; the opacity is not between 0
            and 1.
        caption.core.errors.ImageError: the photo cannot be opened.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2:
        raise ValueError(f"one word's weights are (rows, cols), not {weights.shape}")
    style, seen = OverlayStyle(**options), box if seen is None else seen
    scale = scale or style.scale_of(weights)
    show_photo(ax, image, style.saturation)
    cells, (left, top, right, bottom) = _continued(style.drawn(weights), box, seen)
    heat = ax.imshow(
        cells,
        cmap=style.colours(scale),
        vmin=scale.low,
        vmax=scale.high,
        extent=(left, right, bottom, top),
        interpolation="bilinear" if style.is_blurred else SMOOTH if style.is_smooth else "nearest",
        interpolation_stage="data",
        aspect="equal",
    )
    # A box, as the axes have one: a path would be rounded to other pixels, and leave the photo's last row uncovered.
    heat.set_clip_box(TransformedBbox(_within(seen, ax), ax.transData))
    _veil_outside(ax, seen, style.strength)
    if location is not None:
        _frame(ax, cell_box(weights.shape, box, location, seen), OUTLINE)
    if point is not None:
        for colour, width in OUTLINE:
            ax.plot(*point, "+", color=colour, markersize=10 + width, markeredgewidth=width)
    return draw_boxes(ax, boxes)


def draw_boxes(ax: Axes, boxes: Iterable[BoxLike]) -> Axes:
    """Outline boxes (left, top, right, bottom), in pixels, on axes that show a photo; masks along their pixels."""
    for box in boxes:
        if isinstance(box, ObjectMask):
            pixels = np.pad(box.pixels(), 1)  # a contour closes only within the array
            y, x = (np.arange(side) - 0.5 for side in pixels.shape)
            for colour, width in BOX:
                ax.contour(x, y, pixels, levels=[0.5], colors=[colour], linewidths=width)
        else:
            _frame(ax, box, BOX)
    return ax


def _frame(ax: Axes, box: BoxLike, lines: Iterable[tuple[str, float]]) -> None:
    left, top, right, bottom = box
    for colour, width in lines:
        frame = Rectangle((left, top), right - left, bottom - top)
        frame.set(fill=False, edgecolor=colour, linewidth=width)
        ax.add_patch(frame)


def show_photo(ax: Axes, image: Photo, saturation: float = 1.0) -> Axes:
    """Draw the photo alone, upright, at its true aspect ratio; the axes count in its pixels.

    Args:
        ax: drawn on and returned.
        image: the photo, or its path.
        saturation: the part of its colours that is kept: 0 is grey, 1 the photo as it is.
    """
    photo = open_image(image)
    width, height = photo.size
    spare = _spare_pixels(photo, ax)
    small = photo.reduce(spare) if spare > 1 else photo
    if saturation < 1:
        small = Image.blend(small.convert("L", LUMINANCE).convert("RGB"), small, saturation)
    shown = np.asarray(small)
    # If the photo cannot be divided evenly, the last pixels reach beyond its edge and are cut off there.
    ax.imshow(shown, extent=(0, shown.shape[1] * spare, shown.shape[0] * spare, 0), aspect="equal")
    ax.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def _spare_pixels(photo: Image.Image, ax: Axes) -> int:
    """The factor by which the photo's sides may shrink. Fewer pixels are faster: each panel draws them all."""
    inches = np.array(ax.get_window_extent().size) / ax.figure.dpi
    return max(1, int(np.min(np.array(photo.size) / np.maximum(inches * PRINT_DPI, 1))))


def draw_scale(ax: Axes, scale: Scale, regions: int | None = None, **options: Unpack[OverlayOptions]) -> Axes:
    """Draw a bar with the colours of the weights, with a line at 1/L, even attention, if `regions` is given.

    Args:
        ax: a flat strip; drawn on and returned.
        scale: the weights at its two ends.
        regions: L, the number of cells. None draws no line: even attention is 1/L only for a distribution.
        options: as given to `overlay`.
    """
    ramp = np.linspace(scale.low, scale.high, STEPS)[None]
    ax.set_facecolor("0.75")  # on grey, colours that darken a photo and colours that brighten it can be seen
    ax.imshow(
        ramp, cmap=OverlayStyle(**options).colours(scale), aspect="auto", extent=(scale.low, scale.high, 0, 1)
    )
    if regions is not None and scale.low < 1 / regions < scale.high:
        ax.axvline(1 / regions, color="white", linewidth=2)
        ax.axvline(1 / regions, color="black", linewidth=0.8)
    ticks = [scale.low, *([0.0] if scale.signed else []), scale.high]
    ax.set(xticks=ticks, yticks=[])
    labels = (f"{tick:.2g}" if abs(tick) >= scale.high / 1000 else "0" for tick in ticks)
    ax.set_xticklabels([label.replace("-", "−") for label in labels])
    ax.tick_params(length=2, labelsize=7, pad=1)
    return ax


def covers(box: BoxLike, size: tuple[float, float]) -> bool:
    """Whether the box contains a whole photo of this (width, height), to half a pixel."""
    left, top, right, bottom = box
    return left <= 0.5 and top <= 0.5 and right >= size[0] - 0.5 and bottom >= size[1] - 0.5


def _continued(
    weights: np.ndarray, box: BoxLike, seen: BoxLike
) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """A map and its box, with the outermost cells repeated until they cover the part that the model has seen."""
    (rows, cols), (left, top, right, bottom) = weights.shape, box
    width, height = (right - left) / cols, (bottom - top) / rows
    shares = shares_of(seen, box)
    missing = (-shares.left * cols, -shares.top * rows, (shares.right - 1) * cols, (shares.bottom - 1) * rows)
    west, north, east, south = (max(0, math.ceil(cells - ROUNDING)) for cells in missing)
    cells = np.pad(weights, ((north, south), (west, east)), mode="edge")
    return cells, (left - west * width, top - north * height, right + east * width, bottom + south * height)


def _within(seen: BoxLike, ax: Axes) -> Bbox:
    """The part of a box that is on the axes."""
    (left, top, right, bottom), width, height = seen, ax.get_xlim()[1], ax.get_ylim()[0]
    return Bbox([(max(left, 0), max(top, 0)), (min(right, width), min(bottom, height))])


def _rectangle(box: BoxLike) -> Outline:
    left, top, right, bottom = box
    return Outline([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], closed=True)


def _veil_outside(ax: Axes, seen: BoxLike, opacity: float) -> None:
    left, top, right, bottom = seen
    width, height = ax.get_xlim()[1], ax.get_ylim()[0]
    if covers(seen, (width, height)):
        return
    left, right = np.clip([left, right], 0, width)
    top, bottom = np.clip([top, bottom], 0, height)
    photo = Outline([(0, 0), (width, 0), (width, height), (0, height), (0, 0)], closed=True)
    # In the opposite direction, the part seen is a hole in the photo's outline.
    unseen = Outline.make_compound_path(photo, _rectangle((left, top, right, bottom)))
    ax.add_patch(PathPatch(unseen, facecolor=(0, 0, 0, opacity), edgecolor="none"))
    ax.add_patch(PathPatch(unseen, fill=False, edgecolor=(1, 1, 1, 0.3), hatch="////", linewidth=0))
