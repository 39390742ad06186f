"""Cells and masks, against loops over finely cut pixels; grids lie on off-centre crops and beyond the photo."""

from __future__ import annotations

import numpy as np
import pytest
from pycocotools import mask as coco

from caption.analysis.covered_cells import centres_inside, coverage
from caption.analysis.pointing_game import ground
from caption.data.boxes import ObjectMask
from caption.result import Caption

HEIGHT, WIDTH = 30, 50
CROP = (23.0, 4.0, 47.0, 28.0)  # off the middle, and square in a photo that is not
GRIDS = [
    ((3, 4), CROP, None),
    ((3, 4), (19.5, 1.25, 51.5, 33.5), CROP),  # the encoder's padding: cells begin outside of the crop
    ((2, 5), (-10.0, -7.5, 60.0, 37.5), None),  # padded to a square
]
FINE = 4
"""Parts of a pixel along each side: edges lie on multiples of 1 / 4."""


def masked(seed: int = 0) -> tuple[np.ndarray, ObjectMask]:
    pixels = np.random.default_rng(seed).random((HEIGHT, WIDTH)) < 0.3
    return pixels, ObjectMask.from_rle(coco.encode(np.asfortranarray(pixels.astype(np.uint8))))


def shares_by_loops(pixels, grid, box, seen):
    """The covered part of each cell: all parts of pixels in what the model has seen, each given to its cell."""
    (rows, cols), (left, top, right, bottom) = grid, box
    inside, whole = np.zeros(grid), np.zeros(grid)
    x0, y0, x1, y1 = seen or box
    for down in np.arange(y0 + 0.5 / FINE, y1, 1 / FINE):
        for across in np.arange(x0 + 0.5 / FINE, x1, 1 / FINE):
            row = min(max(int((down - top) / (bottom - top) * rows), 0), rows - 1)
            col = min(max(int((across - left) / (right - left) * cols), 0), cols - 1)
            whole[row, col] += 1
            if 0 <= down < HEIGHT and 0 <= across < WIDTH:
                inside[row, col] += pixels[int(down), int(across)]
    return inside / whole


@pytest.mark.parametrize(("grid", "box", "seen"), GRIDS)
def test_coverage_of_a_mask(grid, box, seen):
    pixels, mask = masked()
    assert coverage(*grid, box, [mask], seen) == pytest.approx(
        shares_by_loops(pixels, grid, box, seen), abs=1e-6
    )


@pytest.mark.parametrize(("grid", "box", "seen"), GRIDS)
@pytest.mark.parametrize("tolerance", [0.0, 2.0])
def test_centres_in_a_mask(grid, box, seen, tolerance):
    pixels, mask = masked(1)
    (rows, cols), (left, top, right, bottom) = grid, box
    for row in range(rows):
        for col in range(cols):
            x = left + (col + 0.5) * (right - left) / cols
            y = top + (row + 0.5) * (bottom - top) / rows
            near = [
                pixels[j, i]
                for j in range(HEIGHT)
                for i in range(WIDTH)
                if i - tolerance <= x < i + 1 + tolerance and j - tolerance <= y < j + 1 + tolerance
            ]
            assert centres_inside(*grid, box, [mask], tolerance)[row, col] == any(near), (row, col)


def test_boxes_and_masks_of_one_name_count_together():
    pixels, mask = masked(2)
    both = pixels.copy()
    both[5:9, 30:40] = True
    found = coverage(3, 4, CROP, [mask, (30, 5, 40, 9)])
    assert found == pytest.approx(shares_by_loops(both, (3, 4), CROP, None), abs=1e-6)


def test_a_hit_in_the_box_may_miss_the_mask():
    """A ring: its box has the hole, its mask does not."""
    pixels = np.zeros((HEIGHT, WIDTH), bool)
    pixels[4:28, 23:47] = True
    pixels[12:20, 31:39] = False
    ring = ObjectMask.from_rle(coco.encode(np.asfortranarray(pixels.astype(np.uint8))))
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
