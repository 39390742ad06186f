"""Boxes in a photo, and the cells of a grid that covers a box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class Box(NamedTuple):
    """A rectangle in the pixels of the original, upright image: x to the right, y down.

    (0, 0) is the outer corner of the first pixel, so a whole image of w×h pixels is (0, 0, w, h).
    """

    left: float
    top: float
    right: float
    bottom: float


BoxLike = Sequence[float]
"""A `Box`, or any four numbers in its order."""


def shares_of(part: BoxLike, whole: BoxLike) -> Box:
    """A box in shares of another box's width and height: (0, 0, 1, 1) if the two are equal. Inverse of `part_of`."""
    left, top, right, bottom = whole
    width, height = right - left, bottom - top
    return Box(
        (part[0] - left) / width, (part[1] - top) / height, (part[2] - left) / width, (part[3] - top) / height
    )


def part_of(whole: BoxLike, shares: BoxLike) -> Box:
    """The box whose edges are at these shares of another box's width and height."""
    left, top, right, bottom = whole
    # This form is exact at 0 and 1.
    across, down = (
        [(1 - share) * start + share * end for share in (shares[axis], shares[axis + 2])]
        for axis, start, end in ((0, left, right), (1, top, bottom))
    )
    return Box(across[0], down[0], across[1], down[1])


def cell_edges(
    rows: int, cols: int, box: BoxLike, seen: BoxLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """x (cols + 1,) and y (rows + 1,) of the edges between a grid's cells, in pixels.

    Args:
        rows, cols: of the grid.
        box: the part of the image that the grid covers.
        seen: the part of the image that the model has seen. The outermost cells then end at its edges: the grid is cut
            off outside it, and extended to it by the nearest cells. None = the cells cover the box.

    Raises:
        ValueError: the box has no area.
    """
    left, top, right, bottom = box
    if not (left < right and top < bottom):
        raise ValueError(f"a grid's box needs left < right and top < bottom, not {tuple(box)}")
    import numpy as np  # here, because the help of a command needs boxes, but no arrays

    x, y = np.linspace(left, right, cols + 1), np.linspace(top, bottom, rows + 1)
    if seen is None:
        return x, y
    return _ending(x, seen[0], seen[2]), _ending(y, seen[1], seen[3])


def cell_box(shape: Sequence[int], box: BoxLike, cell: Sequence[int], seen: BoxLike | None = None) -> Box:
    """One cell (row, col) of a grid of this shape (rows, cols); `box` and `seen` as for `cell_edges`."""
    (rows, cols), (row, col) = shape, cell
    x, y = cell_edges(rows, cols, box, seen)
    return Box(float(x[col]), float(y[row]), float(x[col + 1]), float(y[row + 1]))


def cell_centres(rows: int, cols: int, box: BoxLike) -> tuple[np.ndarray, np.ndarray]:
    """x (cols,) and y (rows,), in pixels, of the centres of a grid's cells, around which their receptive fields lie."""
    x, y = cell_edges(rows, cols, box)
    return (x[:-1] + x[1:]) / 2, (y[:-1] + y[1:]) / 2


def _ending(edges: np.ndarray, start: float, end: float) -> np.ndarray:
    edges = edges.clip(start, end)
    edges[0], edges[-1] = start, end
    return edges
