"""Selection of places on the grid, and of steps by their words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from caption.analysis.interventions.selection import amounts, steps_of, tokens_of, touched
from caption.box import Box
from caption.result import Caption

ROWS, COLS = 2, 4


def caption_of(sentence: str, finished: bool = True, box: tuple[float, ...] = (10, 20, 50, 40)) -> Caption:
    """Cells of 10 x 10 pixels."""
    words = sentence.split()
    maps = np.full((len(words), ROWS, COLS), 1 / 8)
    return Caption(sentence, words, maps, 0.0, np.zeros(len(words)), box, finished=finished)


CAPTION = caption_of("a red cat and a dog")


# -- places ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [(1, 2), [1, 2], np.array([1, 2]), (np.int64(1), torch.tensor(2))])
def test_a_cell(cell: Any):
    assert np.argwhere(amounts(cell, CAPTION)).tolist() == [[1, 2]]
    assert amounts(cell, CAPTION).sum() == 1


def test_a_box_is_the_part_of_each_cell_that_it_covers():
    expected = [[0, 0.5 * 0.5, 0.5, 0], [0, 0.5 * 0.2, 0.2, 0]]
    for box in ((25, 25, 40, 32), Box(25.0, 25.0, 40.0, 32.0), np.array([25, 25, 40, 32])):
        assert amounts(box, CAPTION) == pytest.approx(np.array(expected))
    assert amounts((0, 0, 15, 40), CAPTION) == pytest.approx(np.array([[0.5, 0, 0, 0]] * 2))
    assert touched((25, 25, 40, 32), CAPTION).tolist() == [[False, True, True, False]] * 2


def test_a_neighbour_is_not_touched_by_rounding():
    caption = caption_of("a cat", box=(0, 0, 0.3, 0.1))
    third = 3 * 0.3 / 4
    assert touched((0, 0, third + 1e-12, 0.05), caption).tolist() == [[True, True, True, False], [False] * 4]


def test_a_map_is_used_unchanged():
    given = np.arange(8.0).reshape(2, 4)
    assert (amounts(given, CAPTION) == given).all()
    assert (amounts(torch.from_numpy(given), CAPTION) == given).all()
    assert (touched(given > 5, CAPTION) == (given > 5)).all()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ((2, 0), r"no cell \(2, 0\) in a grid of 2 rows and 4 columns"),
        ((-1, 0), r"no cell \(-1, 0\)"),
        ((0.5, 1), "whole numbers"),
        ((30, 20, 30, 40), "a box is"),
        ((0, 0, 10, 40), r"lies outside what the model sees of the photo, \(10.0, 20.0, 50.0, 40.0\)"),
        (np.zeros((2, 4)), "not all of them 0"),
        (np.full((2, 4), -1.0), "not negative"),
        (np.ones((4, 2)), r"map of 2 x 4 numbers, not an array of shape \(4, 2\)"),
        (7, "not 7"),
        ([[1], [2, 3]], "a place is"),
        (None, "a place is"),
    ],
)
def test_invalid_places_are_refused(place: Any, said: str):
    with pytest.raises(ValueError, match=said):
        amounts(place, CAPTION)


# -- steps -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "steps"),
    [
        (None, None),
        (0, {0}),
        (6, {6}),
        (np.int64(2), {2}),
        ("red", {1}),
        ("<end>", {6}),
        (["red", 4, "dog"], {1, 4, 5}),
        (range(2, 4), {2, 3}),
        (np.array([1, 2]), {1, 2}),
        (torch.tensor(3), {3}),
    ],
)
def test_steps_by_number_and_by_word(at: Any, steps: set[int] | None):
    assert steps_of(at, CAPTION) == steps


def test_an_unfinished_caption_has_no_step_for_its_end():
    cut = caption_of("a red cat", finished=False)
    assert tokens_of(cut) == ("a", "red", "cat")
    assert tokens_of(caption_of("a red cat")) == ("a", "red", "cat", "<end>")
    with pytest.raises(ValueError, match=r"no step 3: they run from 0 \('a'\) to 2 \('cat'\)"):
        steps_of(3, cut)
    with pytest.raises(ValueError, match="'<end>' is not said"):
        steps_of("<end>", cut)
    with pytest.raises(ValueError, match="no step 0: it has none"):
        steps_of(0, caption_of("", finished=False))


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (7, r"no step 7: they run from 0 \('a'\) to 6 \('<end>'\)"),
        (-1, "no step -1"),
        ("bird", "'bird' is not said: the caption is 'a red cat and a dog <end>'"),
        ("a", r"'a' is said at the steps \[0, 4\]: select one"),
        ([], "no step is selected"),
        (1.5, "not 1.5"),
        (["red", None], "not None"),
    ],
)
def test_steps_that_are_not_there_are_named(at: Any, said: str):
    with pytest.raises(ValueError, match=said):
        steps_of(at, CAPTION)
