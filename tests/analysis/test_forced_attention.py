"""Edits of maps: where and at which steps they hold, on any grid, with the sum preserved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from caption.analysis.interventions.forced_attention import (
    Change,
    Force,
    Mask,
    Move,
    visible_on,
    visible_regions,
)
from caption.analysis.interventions.selection import amounts, steps_of, tokens_of, touched
from caption.core.box import Box
from caption.core.errors import UserError
from caption.results.caption import Caption

ROWS, COLS = 2, 3
EVEN = np.full((ROWS, COLS), 1 / 6)
DOG = np.array([[0.0, 0.5, 0.0], [0.25, 0.25, 0.0]])
WORDS = ["a", "red", "a", "dog"]
CAPTION = Caption(
    " ".join(WORDS), WORDS, np.stack([EVEN, EVEN, EVEN, DOG]), 0.0, np.zeros(4), (10, 20, 40, 40)
)
"""Cells of 10 x 10 pixels."""
WEIGHTS = torch.tensor([[[0.1, 0.2, 0.3, 0.1, 0.1, 0.2], [0.5, 0.0, 0.1, 0.2, 0.1, 0.1]]])  # (1, 2, 6)


def approx(maps: Any) -> object:
    return pytest.approx(np.array(maps), abs=1e-6)


# -- places and steps ------------------------------------------------------------------------------------------

CELL = [[0, 0, 0], [0, 0, 1]]
COVERED = [[0, 0.5 * 0.5, 0.5], [0, 0.5 * 0.2, 0.2]]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ([1, 2], CELL),
        ((np.int64(1), torch.tensor(2)), CELL),
        (Box(25.0, 25.0, 40.0, 32.0), COVERED),
        (np.array([25, 25, 40, 32]), COVERED),
        ((0, 0, 15, 40), [[0.5, 0, 0]] * 2),  # beyond what the model sees
        (torch.from_numpy(DOG), DOG),
    ],
)
def test_a_place_is_a_cell_a_box_or_a_map(place: Any, expected: Any):
    assert amounts(place, CAPTION) == approx(expected)
    assert touched(place, CAPTION).tolist() == (np.array(expected) > 0).tolist()


def test_a_neighbour_is_not_touched_by_rounding():
    caption = replace(CAPTION, box=(0, 0, 3.3, 1.1))
    third = 2 * 3.3 / 3
    assert touched((0, 0, third + 1e-12, 0.5), caption).tolist() == [[True, True, False], [False] * 3]


@pytest.mark.parametrize(
    ("at", "steps"),
    [
        (None, None),
        (np.int64(2), {2}),
        (torch.tensor(3), {3}),
        ("red", {1}),
        ("<end>", {4}),
        (["red", 4, "dog"], {1, 3, 4}),
        (np.array([1, 2]), {1, 2}),
    ],
)
def test_steps_by_number_and_by_word(at: Any, steps: set[int] | None):
    assert steps_of(at, CAPTION) == steps


def test_an_unfinished_caption_has_no_step_for_its_end():
    cut = replace(CAPTION, finished=False)
    assert tokens_of(cut) == tuple(WORDS)
    with pytest.raises(ValueError, match="step 4"):
        steps_of(4, cut)
    with pytest.raises(ValueError, match="'<end>'"):
        steps_of("<end>", cut)
    with pytest.raises(ValueError, match="step 0"):
        steps_of(0, Caption("", [], np.zeros((0, ROWS, COLS)), 0.0, np.zeros(0), CAPTION.box, finished=False))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Force((2, 0)), r"no cell \(2, 0\) in a grid of 2 rows and 3 columns"),
        (Force((-1, 0)), r"no cell \(-1, 0\)"),
        (Force((0.5, 1)), "whole numbers"),
        (
            Force((30, 20, 30, 40)),
            r"the box \[30.0, 20.0, 30.0, 40.0\] has no area, or is x, y, width, height",
        ),
        (Mask((0.1, 0.2, 0.6, 0.9)), "looks like fractions of the photo's width and height: multiply"),
        (Force((20, float("nan"), 30, 40)), "a side that is not a finite number"),
        (
            Force((0, 0, 10, 40)),
            r"outside the part of the photo that the model sees, \(10.0, 20.0, 40.0, 40.0\)",
        ),
        (Force(np.zeros((2, 3))), "not all of them 0"),
        (Force(-EVEN), "not negative"),
        (Force(np.ones((4, 2))), r"map of 2 x 3 numbers, not an array of shape \(4, 2\)"),
        (Force([[1], [2, 3]]), "a place is"),
        (Force(None), "a place is"),
        (Force("bird"), "'bird' is not in the caption 'a red a dog <end>'"),
        (Force("<end>"), "no map of its end token"),
        (Force((0, 0), at=5), r"no step 5: they run from 0 \('a'\) to 4 \('<end>'\)"),
        (Force((0, 0), at=-1), "no step -1"),
        (Force((0, 0), at="a"), r"'a' is at the steps \[0, 2\] of the caption: select one"),
        (Force((0, 0), at=[]), "no step is selected"),
        (Force((0, 0), at=["red", 1.5]), "not 1.5"),
        (Move(down=2), "moved by 2 rows and 0 columns, nothing stays on the grid of 2 rows and 3 columns"),
        (Move(right=-3), "nothing stays"),
        (Mask((10, 20, 40, 40)), "all 6 regions would be hidden"),
    ],
)
def test_impossible_edits_are_refused_before_any_work(change: Change, said: str):
    with pytest.raises(ValueError, match=said):
        change.edit(CAPTION)


def test_a_word_that_looks_nowhere_is_no_place_to_look_at():
    blind = CAPTION.with_weights(np.stack([EVEN, 0 * EVEN, EVEN, DOG]))
    with pytest.raises(ValueError, match="'red' looks nowhere"):
        Force("red", at=0).edit(blind)


def test_a_box_beyond_the_photo_is_refused_but_not_one_in_its_padding():
    caption = replace(CAPTION, box=(-10, 0, 50, 40), image=Image.new("RGB", (40, 40)))
    for box, said in (
        ((20, 20, 900, 1000), "coordinates from 0 to 1000"),
        ((20, 20, 60, 40), "reaches beyond"),
    ):
        with pytest.raises(ValueError, match=said):
            amounts(box, caption)
    assert amounts((-10, 0, 10, 20), caption)[0].tolist() == [1, 0, 0]


# -- effects ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [Force((0, 0), at="red"), Move(right=1, at=1), Mask((0, 0), at=[1])])
def test_only_the_steps_that_are_meant_are_changed(change: Change):
    edit = change.edit(CAPTION)
    assert [edit(WEIGHTS, step, (ROWS, COLS)) is WEIGHTS for step in range(4)] == [True, False, True, True]


def changed(change: Change, weights: Tensor = WEIGHTS, grid: tuple[int, int] = (ROWS, COLS)) -> Tensor:
    return change.edit(CAPTION)(weights, 0, grid)[0].view(-1, *grid)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ((1, 2), CELL),
        # Half of the first column, all of the second, upper row.
        ((15, 20, 30, 30), [[1 / 3, 2 / 3, 0], [0, 0, 0]]),
        ([[0, 2, 2], [0, 0, 4]], [[0, 0.25, 0.25], [0, 0, 0.5]]),  # a map is scaled to 1
        ("dog", DOG),
    ],
)
def test_forced_onto_a_place_or_another_words_map(where: Any, expected: Any):
    assert changed(Force(where)) == approx([expected] * 2)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (Move(right=1), [[[0, 0.1, 0.2], [0, 0.1, 0.1]], [[0, 0.5, 0.0], [0, 0.2, 0.1]]]),
        (Move(right=-2), [[[0.3, 0, 0], [0.2, 0, 0]], [[0.1, 0, 0], [0.1, 0, 0]]]),
        (Move(down=1), [[[0, 0, 0], [0.1, 0.2, 0.3]], [[0, 0, 0], [0.5, 0.0, 0.1]]]),
        (Move(-1, 1), [[[0, 0.1, 0.1], [0, 0, 0]], [[0, 0.2, 0.1], [0, 0, 0]]]),
        (Mask((25, 20, 40, 29)), [[[0.1, 0, 0], [0.1, 0.1, 0.2]], [[0.5, 0, 0], [0.2, 0.1, 0.1]]]),
    ],
)
def test_weight_that_is_lost_is_shared_in_proportion(change: Change, left: list):
    maps = np.array(left)
    assert changed(change) == approx(maps / maps.sum((1, 2), keepdims=True))


@pytest.mark.parametrize("change", [Force((0, 1)), Force("dog"), Move(right=1), Mask((0, 1))])
def test_of_weights_with_signs_the_sum_of_magnitudes_stays(change: Change):
    after = changed(change, WEIGHTS * torch.tensor([1.0, -1, 1, -1, 1, -1]))
    assert after.abs().sum((1, 2)).tolist() == pytest.approx([1, 1])
    assert isinstance(change, Force) or (after < 0).any()


@pytest.mark.parametrize("change", [Mask((0, 1)), Move(right=2)])
def test_where_nothing_is_left_there_is_nothing_to_share(change: Change):
    with pytest.raises(UserError, match="nothing left to read"):
        changed(change, torch.tensor([[[0.0, 1, 0, 0, 0, 0]]]))


# -- on other grids --------------------------------------------------------------------------------------------


def test_a_place_is_carried_to_a_finer_grid_by_area():
    fine = torch.arange(1.0, 25).view(4, 6) / 300  # each cell of the caption's grid is four of these
    forced, masked, moved = torch.zeros(4, 6), fine.clone(), torch.zeros(4, 6)
    forced[2:, 4:] = 0.25
    masked[2:, 4:] = 0
    moved[:, 2:] = fine[:, :-2]
    for change, left in ((Force((1, 2)), forced), (Mask((1, 2)), masked), (Move(right=1), moved)):
        assert torch.allclose(changed(change, fine.view(1, 1, 24), (4, 6))[0], left / left.sum())


def test_on_a_coarser_grid_parts_of_regions_count_in_part():
    coarse = torch.tensor([[[0.25, 0.75]]])  # 1 x 2 cells, each one and a half of the caption's columns wide
    for change, left in (
        (Force((0, 1)), [0.5, 0.5]),
        (Move(right=1), [0.25 / 3, 0.25 * 2 / 3 + 0.75 / 3]),  # by two thirds of a cell
        (Mask((0, 0)), [0.25 * 2 / 3, 0.75]),  # a third of the first cell
    ):
        assert changed(change, coarse, (1, 2))[0, 0].tolist() == pytest.approx(np.array(left) / sum(left))


def test_regions_of_another_grid_that_have_a_part_in_a_place_are_not_visible():
    assert visible_on([(1, 2)], CAPTION, (ROWS, COLS)).tolist() == visible_regions([(1, 2)], CAPTION).tolist()
    hidden = ~visible_on([(1, 2)], CAPTION, (4, 6)).view(4, 6)
    assert hidden.nonzero().tolist() == [[2, 4], [2, 5], [3, 4], [3, 5]]
    assert visible_on([(0, 0)], CAPTION, (1, 2)).tolist() == [False, True]
    with pytest.raises(ValueError, match="all 2 regions would be hidden"):
        visible_on([(0, 1)], CAPTION, (1, 2))
