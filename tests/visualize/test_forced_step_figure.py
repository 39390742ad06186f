"""The figure of `force_everywhere`: areas of equal words, and the words written on them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import planted, tiny_captioner

from caption.analysis.interventions import ForcedStep, force_everywhere
from caption.result import Caption
from caption.search import Greedy
from caption.visualize.forced_step import areas, plot_forced_step


def forced(words: list[list[str]], step: int = 1) -> ForcedStep:
    shape = len(words), len(words[0])
    caption = Caption("a dog", ["a", "dog"], np.full((2, *shape), 1 / 36), 0.0, np.zeros(2), (0, 0, 120, 120))
    return ForcedStep(caption, step, words, np.zeros(shape, np.float32))


def test_areas_are_connected_along_edges_not_corners():
    found = areas([["a", "a", "b"], ["b", "a", "b"], ["a", "b", "b"]])
    assert [(word, len(cells)) for word, cells in found] == [("b", 4), ("a", 3), ("b", 1), ("a", 1)]
    assert sorted(map(tuple, found[1][1])) == [(0, 0), (0, 1), (1, 1)]


def test_each_large_area_bears_its_word_once_and_within_itself():
    words = [["dog"] * 6 for _ in range(3)] + [["grass"] * 6 for _ in range(3)]
    words[0][0] = "cat"  # too near to the edge to be written
    fig = plot_forced_step(forced(words), tiny_captioner.photo(120, 120))
    own, elsewhere = fig.axes
    assert [text.get_text() for text in fig.texts] == ["a …", "dog", "and if it looked there?"]
    places = {text.get_text(): text.get_position() for text in elsewhere.texts}
    assert {"dog", "grass"} <= set(places)
    assert places["dog"][1] < 60 < places["grass"][1]
    assert own.images
    assert elsewhere.get_xlim() == (0, 120)


def test_the_end_token_has_no_map_of_its_own():
    fig = plot_forced_step(forced([["<end>"] * 6 for _ in range(6)], step=2), tiny_captioner.photo(120, 120))
    assert [text.get_text() for text in fig.texts] == ["a dog …", "<end>", "and if it looked there?"]
    assert len(fig.axes[0].images) == 1


def test_a_result_draws_itself_with_the_photo_that_it_carries():
    model = planted.captioner([0.1, 0.6, 0.1, 0.1, 0.1, 0.0], [0.0, 0.1, 0.8, 0.1, 0.0, 0.0])
    result = force_everywhere(model, planted.photo(), "two", Greedy(2))
    assert len(result.plot(style="paper").axes) == 2
    assert repr(result).startswith("ForcedStep('two' at step 1; regions by their likeliest word: ")
    result.caption.image = None
    with pytest.raises(ValueError, match="no photo"):
        result.plot()
