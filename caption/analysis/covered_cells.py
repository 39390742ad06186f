"""The cells of a grid that lie in boxes and masks of objects, and the share of each cell that is covered.

Everything is in the pixels of the original photo: the box that a grid covers may be a part of it, such as an off-centre
crop, and cells need not be square.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from caption.core.box import BoxLike, cell_centres, cell_edges
from caption.data.boxes import ObjectMask

ROUNDING = 1e-6
"""Areas in pixels² that are none: differences of cumulated sums."""


def centres_inside(
    rows: int, cols: int, box: BoxLike, boxes: Iterable[BoxLike], tolerance: float = 0.0
) -> np.ndarray:
    """(rows, cols) bool: the cells whose centre lies in a box, or mask, or outside by up to `tolerance` pixels."""
    x, y = cell_centres(rows, cols, box)
    inside = np.zeros((rows, cols), dtype=bool)
    for object_box in boxes:
        if isinstance(object_box, ObjectMask):
            inside |= _in_mask(object_box.pixels(), x, y, tolerance)
            continue
        left, top, right, bottom = object_box
        in_x = (left - tolerance <= x) & (x <= right + tolerance)
        in_y = (top - tolerance <= y) & (y <= bottom + tolerance)
        inside |= in_y[:, None] & in_x[None, :]
    return inside


def coverage(
    rows: int, cols: int, box: BoxLike, boxes: Sequence[BoxLike], seen: BoxLike | None = None
) -> np.ndarray:
    """(rows, cols) float64: the part of each cell's area that the boxes cover, exactly; overlaps count once.

    Only the area that the model has seen counts, and the outermost cells reach to its end (`core.box.cell_edges`). A
    cell outside it has 0. The edges of cells and boxes cut the grid into tiles that are wholly inside or outside each
    box. If there is a mask, boxes, too, are counted in whole pixels.
    """
    x_cells, y_cells = cell_edges(rows, cols, box, seen)
    if any(isinstance(object_box, ObjectMask) for object_box in boxes):
        corners = _before(_all_pixels(boxes), x_cells, y_cells)
        return np.diff(np.diff(corners, axis=0), axis=1) / _areas(x_cells, y_cells)
    x = _cuts(x_cells, [side for left, _, right, _ in boxes for side in (left, right)])
    y = _cuts(y_cells, [side for _, top, _, bottom in boxes for side in (top, bottom)])
    x_middle, y_middle = (x[:-1] + x[1:]) / 2, (y[:-1] + y[1:]) / 2
    covered = np.zeros((len(y_middle), len(x_middle)), dtype=bool)
    for left, top, right, bottom in boxes:
        in_x, in_y = (left < x_middle) & (x_middle < right), (top < y_middle) & (y_middle < bottom)
        covered |= in_y[:, None] & in_x[None, :]
    areas = covered * np.diff(y)[:, None] * np.diff(x)[None, :]
    row = np.searchsorted(y_cells, y_middle) - 1
    col = np.searchsorted(x_cells, x_middle) - 1
    per_cell = np.zeros((rows, cols))
    np.add.at(per_cell, (row[:, None], col[None, :]), areas)
    return per_cell / _areas(x_cells, y_cells)


def _areas(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(rows, cols) the areas of the cells between edges, with 1 for 0, to divide by."""
    areas = np.diff(y)[:, None] * np.diff(x)[None, :]
    return np.where(areas > 0, areas, 1)


def _in_mask(pixels: np.ndarray, x: np.ndarray, y: np.ndarray, tolerance: float) -> np.ndarray:
    """(rows, cols) bool: whether a pixel of a mask lies at the points, or within `tolerance` along x and y."""
    if not tolerance:  # the pixel at the point
        height, width = pixels.shape
        row, col = np.floor(y).astype(int), np.floor(x).astype(int)
        on_photo = ((row >= 0) & (row < height))[:, None] & ((col >= 0) & (col < width))[None, :]
        return on_photo & pixels[row.clip(0, height - 1)[:, None], col.clip(0, width - 1)[None, :]]
    corners = _before(
        pixels, np.append(x - tolerance, x + tolerance), np.append(y - tolerance, y + tolerance)
    )
    upper, lower = np.split(corners, 2)
    left, right = np.split(lower - upper, 2, axis=1)
    return right - left > ROUNDING


def _all_pixels(boxes: Sequence[BoxLike]) -> np.ndarray:
    """(height, width) bool: the pixels of masks, and those whose centre is in a box."""
    masks = [box.pixels() for box in boxes if isinstance(box, ObjectMask)]
    pixels = np.logical_or.reduce(masks)
    height, width = pixels.shape
    plain = [box for box in boxes if not isinstance(box, ObjectMask)]
    return pixels | centres_inside(height, width, (0, 0, width, height), plain)


def _before(pixels: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(len(y), len(x)) float64: the area of a mask above and to the left of points, which may lie inside pixels."""
    sums = np.pad(pixels.cumsum(0).cumsum(1).astype(np.float64), ((1, 0), (1, 0)))
    height, width = pixels.shape

    def at(edges: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        edges = edges.clip(0, size)
        start = np.minimum(np.floor(edges).astype(int), size - 1)
        return start, edges - start

    (rows, down), (cols, across) = at(y, height), at(x, width)
    lines = sums[rows] * (1 - down)[:, None] + sums[rows + 1] * down[:, None]
    return lines[:, cols] * (1 - across) + lines[:, cols + 1] * across


def _cuts(edges: np.ndarray, sides: list[float]) -> np.ndarray:
    """The cells' edges and the boxes' sides that lie between them, in order."""
    return np.unique(np.concatenate([edges, np.clip(sides, edges[0], edges[-1])]))
