"""Boxes as shares of others, and the cells of a grid where what the model has seen ends elsewhere than the grid."""

import numpy as np
import pytest

from caption.box import cell_box, cell_centres, cell_edges, part_of, shares_of


def test_shares_and_parts_are_inverse_and_exact_for_the_whole():
    whole = (12.3, -7.7, 311.1, 205.9)
    assert shares_of(whole, whole) == (0, 0, 1, 1)
    assert part_of(whole, (0, 0, 1, 1)) == whole
    assert part_of((10, 20, 30, 60), (-0.5, 0, 0.5, 1.25)) == (0, 20, 20, 70)
    part = (0.1, 3.0, 400.0, 99.0)
    assert part_of(whole, shares_of(part, whole)) == pytest.approx(part)


def test_the_outermost_cells_end_where_the_model_has_seen():
    box, seen = (-5, 10, 15, 50), (0, 0, 30, 40)
    x, y = cell_edges(2, 4, box)
    assert (x.tolist(), y.tolist()) == ([-5, 0, 5, 10, 15], [10, 30, 50])
    x, y = cell_edges(2, 4, box, seen)
    assert (x.tolist(), y.tolist()) == ([0, 0, 5, 10, 30], [0, 30, 40])
    x, y = cell_edges(2, 4, box, box)
    assert (x.tolist(), y.tolist()) == ([-5, 0, 5, 10, 15], [10, 30, 50])


def test_a_cell_lies_in_its_row_and_column():
    assert cell_box((2, 4), (-5, 10, 15, 50), (1, 2)) == (5, 30, 10, 50)


def test_centres_do_not_depend_on_what_was_seen():
    x, y = cell_centres(2, 4, (-5, 10, 15, 50))
    np.testing.assert_array_equal(x, [-2.5, 2.5, 7.5, 12.5])
    np.testing.assert_array_equal(y, [20, 40])


def test_a_box_without_area_is_refused():
    with pytest.raises(ValueError, match="left < right"):
        cell_edges(2, 2, (0, 0, 0, 5))
