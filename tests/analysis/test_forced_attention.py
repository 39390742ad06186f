"""Edits of maps: at the selected steps, on any grid, with the sum preserved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from caption.analysis.interventions.forced_attention import (
    Change,
    Force,
    Mask,
    Move,
    visible_on,
    visible_regions,
)
from caption.errors import UserError
from caption.result import Caption

ROWS, COLS = 2, 3
MAPS = np.array([[[0.1, 0.2, 0.3], [0.1, 0.1, 0.2]], [[0.0, 0.5, 0.0], [0.25, 0.25, 0.0]]])
CAPTION = Caption("red dog", ["red", "dog"], MAPS, 0.0, np.zeros(2), (0, 0, 30, 20))
WEIGHTS = torch.tensor([[[0.1, 0.2, 0.3, 0.1, 0.1, 0.2], [0.5, 0.0, 0.1, 0.2, 0.1, 0.1]]])  # (1, 2, 6)


def changed(change: Change, step: int = 0, weights: Tensor = WEIGHTS) -> list:
    return change.edit(CAPTION)(weights, step, (ROWS, COLS))[0].view(-1, ROWS, COLS)


def approx(maps: list) -> object:
    return pytest.approx(np.array(maps), abs=1e-6)


# -- selected steps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [Force((0, 0), at="dog"), Move(right=1, at=1), Mask((0, 0), at=[1])])
def test_only_the_steps_that_are_meant_are_changed(change: Change):
    edit = change.edit(CAPTION)
    assert [edit(WEIGHTS, step, (ROWS, COLS)) is WEIGHTS for step in range(4)] == [True, False, True, True]


# -- effects ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ((1, 2), [[0, 0, 0], [0, 0, 1]]),
        (
            (5, 0, 20, 10),
            [[1 / 3, 2 / 3, 0], [0, 0, 0]],
        ),  # half of the first column, all of the second, upper row
        ([[0, 2, 2], [0, 0, 4]], [[0, 0.25, 0.25], [0, 0, 0.5]]),  # a map is scaled to 1
        ("dog", MAPS[1]),
    ],
)
def test_forced_onto_a_place_or_another_words_map(where: Any, expected: Any):
    assert changed(Force(where, at="red")) == approx([expected] * 2)


@pytest.mark.parametrize(
    ("down", "right", "expected"),
    [
        (0, 1, [[[0, 0.1, 0.2], [0, 0.1, 0.1]], [[0, 0.5, 0.0], [0, 0.2, 0.1]]]),
        (0, -2, [[[0.3, 0, 0], [0.2, 0, 0]], [[0.1, 0, 0], [0.1, 0, 0]]]),
        (1, 0, [[[0, 0, 0], [0.1, 0.2, 0.3]], [[0, 0, 0], [0.5, 0.0, 0.1]]]),
        (-1, 1, [[[0, 0.1, 0.1], [0, 0, 0]], [[0, 0.2, 0.1], [0, 0, 0]]]),
        (0, 0, WEIGHTS.view(2, 2, 3).tolist()),
    ],
)
def test_moved_weight_outside_the_grid_is_shared(down: int, right: int, expected: list):
    maps = np.array(expected)
    assert changed(Move(down, right)) == approx(maps / maps.sum((1, 2), keepdims=True))


def test_masked_and_shared_in_proportion():
    maps = np.array([[[0.1, 0, 0], [0.1, 0.1, 0.2]], [[0.5, 0, 0], [0.2, 0.1, 0.1]]])
    assert changed(Mask((15, 0, 30, 9))) == approx(maps / maps.sum((1, 2), keepdims=True))


EVERY = [Force((0, 1)), Force("dog"), Move(right=1), Mask((0, 1))]


@pytest.mark.parametrize("change", EVERY)
def test_of_weights_with_signs_the_sum_of_magnitudes_stays(change: Change):
    signs = torch.tensor([1.0, -1, 1, -1, 1, -1])
    after = changed(change, weights=WEIGHTS * signs)
    assert after.abs().sum((1, 2)).tolist() == pytest.approx([1, 1])
    if not isinstance(change, Force):
        assert (after < 0).any()


# -- on other grids --------------------------------------------------------------------------------------------

FINE = torch.arange(1.0, 25).view(1, 1, 24) / 300  # 4 x 6: each cell of the caption's grid is four of these


def on_fine(change: Change) -> Tensor:
    return change.edit(CAPTION)(FINE, 0, (4, 6)).view(4, 6)


def test_a_place_is_carried_to_another_grid_by_area():
    forced = torch.zeros(4, 6)
    forced[2:, 4:] = 0.25
    assert torch.allclose(on_fine(Force((1, 2))), forced)
    masked = FINE.view(4, 6).clone()
    masked[2:, 4:] = 0
    assert torch.allclose(on_fine(Mask((1, 2))), masked / masked.sum())
    moved = torch.zeros(4, 6)
    moved[:, 2:] = FINE.view(4, 6)[:, :-2]
    assert torch.allclose(on_fine(Move(right=1)), moved / moved.sum())


def test_on_a_coarser_grid_parts_of_regions_count_in_part():
    coarse = torch.tensor([[[0.25, 0.75]]])  # 1 x 2 cells, each one and a half of the caption's columns wide
    forced = Force((0, 1)).edit(CAPTION)(coarse, 0, (1, 2))
    assert torch.allclose(forced, torch.tensor([0.5, 0.5]))
    moved = Move(right=1).edit(CAPTION)(coarse, 0, (1, 2))  # by two thirds of a cell
    left = torch.tensor([0.25 / 3, 0.25 * 2 / 3 + 0.75 / 3])
    assert torch.allclose(moved, left / left.sum())
    masked = Mask((0, 0)).edit(CAPTION)(coarse, 0, (1, 2))  # a third of the first cell
    left = torch.tensor([0.25 * 2 / 3, 0.75])
    assert torch.allclose(masked, left / left.sum())


def test_regions_of_another_grid_that_have_a_part_in_a_place_are_not_visible():
    assert visible_on([(1, 2)], CAPTION, (ROWS, COLS)).tolist() == visible_regions([(1, 2)], CAPTION).tolist()
    assert visible_on([(1, 2)], CAPTION, (4, 6)).view(4, 6).logical_not().nonzero().tolist() == [
        [2, 4], [2, 5], [3, 4], [3, 5],
    ]  # fmt: skip
    assert visible_on([(0, 0)], CAPTION, (1, 2)).tolist() == [False, True]
    with pytest.raises(ValueError, match="all 2 regions would be hidden"):
        visible_on([(0, 1)], CAPTION, (1, 2))


# -- errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Force((0, 0), at=3), "no step 3"),
        (Force("bird"), "'bird' is not said"),
        (Force("<end>"), "no map of its end token"),
        (Move(down=2), "moved by 2 rows and 0 columns, nothing stays on the grid of 2 rows and 3 columns"),
        (Move(right=-3), "nothing stays"),
        (Mask((0, 0, 30, 20)), "all 6 regions would be hidden"),
    ],
)
def test_impossible_edits_are_refused_before_any_work(change: Change, said: str):
    with pytest.raises(ValueError, match=said):
        change.edit(CAPTION)


@pytest.mark.parametrize("change", [Mask((0, 1)), Move(right=2)])
def test_where_nothing_is_left_there_is_nothing_to_share(change: Change):
    only = torch.tensor([[[0.0, 1, 0, 0, 0, 0]]])
    with pytest.raises(UserError, match="nothing left to read"):
        change.edit(CAPTION)(only, 0, (ROWS, COLS))
