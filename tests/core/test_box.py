"""Boxes as shares of others, and the cells of a grid where what the model has seen ends elsewhere than the grid."""

import numpy as np
import pytest

from caption.core.box import cell_box, cell_centres, cell_edges, part_of, shares_of

BOX = (-5, 10, 15, 50)


def test_shares_and_parts_are_inverse_and_exact_for_the_whole():
    whole, part = (-12.3, -7.7, 0.7, 205.9), (0.1, 3.0, 400.0, 99.0)
    assert shares_of(whole, whole) == (0, 0, 1, 1)
    assert part_of(whole, (0, 0, 1, 1)) == whole
    assert part_of((10, 20, 30, 60), (-0.5, 0, 0.5, 1.25)) == (0, 20, 20, 70)
    assert part_of(whole, shares_of(part, whole)) == pytest.approx(part)


@pytest.mark.parametrize(
    ("seen", "across", "down"),
    [
        (None, [-5, 0, 5, 10, 15], [10, 30, 50]),
        ((0, 0, 30, 40), [0, 0, 5, 10, 30], [0, 30, 40]),
        (BOX, [-5, 0, 5, 10, 15], [10, 30, 50]),
    ],
)
def test_the_outermost_cells_end_where_the_model_has_seen_and_centres_do_not_move(seen, across, down):
    x, y = cell_edges(2, 4, BOX, seen)
    assert (x.tolist(), y.tolist()) == (across, down)
    assert cell_box((2, 4), BOX, (1, 2)) == (5, 30, 10, 50)
    x, y = cell_centres(2, 4, BOX)
    np.testing.assert_array_equal(x, [-2.5, 2.5, 7.5, 12.5])
    np.testing.assert_array_equal(y, [20, 40])
    with pytest.raises(ValueError, match="left < right"):
        cell_edges(2, 2, (0, 0, 0, 5))
