"""Cells and masks, against loops over finely cut pixels; grids lie on off-centre crops and beyond the photo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco

from caption.analysis.covered_cells import centres_inside, coverage
from caption.analysis.pointing_game import ground
from caption.data.boxes import ObjectMask
from caption.results.caption import Caption

HEIGHT, WIDTH = 30, 50
CROP = (23.0, 4.0, 47.0, 28.0)  # off the middle, and square in a photo that is not
GRIDS = [
    ((3, 4), CROP, None),
    ((3, 4), (19.5, 1.25, 51.5, 33.5), CROP),  # the encoder's padding: cells begin outside of the crop
    ((2, 5), (-10.0, -7.5, 60.0, 37.5), None),  # padded to a square
]
FINE = 4
"""Parts of a pixel along each side: edges lie on multiples of 1 / 4."""


def mask_of(pixels: np.ndarray) -> ObjectMask:
    return ObjectMask.from_rle(coco.encode(np.asfortranarray(pixels.astype(np.uint8))))


PIXELS = np.random.default_rng(0).random((HEIGHT, WIDTH)) < 0.3
BOXES = [(24.25, 5.0, 40.5, 9.75), (30.0, 2.0, 33.5, 27.25), (-8.0, 20.0, 60.0, 36.0), (30.0, 5.0, 30.0, 9.0)]
"""Crossed, beyond the photo, and one that is empty."""
WHOLE = (30, 5, 40, 9)


def covers(x: float, y: float, things: list[Any]) -> bool:
    """Whether a point lies in `PIXELS`, which any mask stands for, or in a box."""
    for one in things:
        if isinstance(one, ObjectMask):
            if 0 <= y < HEIGHT and 0 <= x < WIDTH and PIXELS[int(y), int(x)]:
                return True
        elif one[0] < x < one[2] and one[1] < y < one[3]:
            return True
    return False


@pytest.mark.parametrize(("grid", "box", "seen"), GRIDS)
@pytest.mark.parametrize("things", [[mask_of(PIXELS)], BOXES, [mask_of(PIXELS), WHOLE]])
def test_coverage(grid, box, seen, things):
    """The covered part of each cell: all parts of pixels in what the model has seen, each given to its cell."""
    (rows, cols), (left, top, right, bottom) = grid, box
    inside, whole = np.zeros(grid), np.zeros(grid)
    x0, y0, x1, y1 = seen or box
    for y in np.arange(y0 + 0.5 / FINE, y1, 1 / FINE):
        for x in np.arange(x0 + 0.5 / FINE, x1, 1 / FINE):
            row = min(max(int((y - top) / (bottom - top) * rows), 0), rows - 1)
            col = min(max(int((x - left) / (right - left) * cols), 0), cols - 1)
            whole[row, col] += 1
            inside[row, col] += covers(x, y, things)
    assert coverage(*grid, box, things, seen) == pytest.approx(inside / whole, abs=1e-6)


@pytest.mark.parametrize(("grid", "box", "seen"), GRIDS)
@pytest.mark.parametrize("tolerance", [0.0, 2.0])
def test_centres_in_a_mask(grid, box, seen, tolerance):
    (rows, cols), (left, top, right, bottom) = grid, box
    found = centres_inside(rows, cols, box, [mask_of(PIXELS)], tolerance)
    for row, col in np.ndindex(rows, cols):
        x = left + (col + 0.5) * (right - left) / cols
        y = top + (row + 0.5) * (bottom - top) / rows
        near = [
            PIXELS[j, i]
            for j, i in np.ndindex(HEIGHT, WIDTH)
            if i - tolerance <= x < i + 1 + tolerance and j - tolerance <= y < j + 1 + tolerance
        ]
        assert found[row, col] == any(near), (row, col)


def test_a_hit_in_the_box_may_miss_the_mask():
    """A ring: its box has the hole, its mask does not."""
    pixels = np.zeros((HEIGHT, WIDTH), bool)
    pixels[4:28, 23:47] = True
    pixels[12:20, 31:39] = False
    ring = mask_of(pixels)
    assert ring == (23, 4, 47, 28)
    weights = np.zeros((1, 3, 3))
    weights[0, 1, 1] = 1  # on the crop, the hole
    caption = Caption("ring", ["ring"], weights, 0.0, np.zeros(1), CROP)
    for boxes, hit, mass in (([tuple(ring)], 1, 1.0), ([ring], 0, 0.0)):
        grounding = ground([(caption, {"ring": boxes})])
        assert (grounding.accuracy, grounding.mass) == (hit, mass)
    # On the whole photo the same cell is another place.
    wide = Caption("ring", ["ring"], weights, 0.0, np.zeros(1), (0, 0, WIDTH, HEIGHT))
    assert ground([(wide, {"ring": [ring]})]).accuracy == 1
