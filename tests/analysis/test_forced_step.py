"""One word with the attention forced to every region in turn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from helpers import planted, tiny_captioner
from helpers.captions import caption_of
from helpers.planted import COLS, ROWS

from caption.analysis.interventions import Force, ForcedStep, force_everywhere, intervene
from caption.analysis.interventions.forced_step_figure import word_areas
from caption.attention import MultiHeadAttention
from caption.captioner import Captioner
from caption.decoders import ShowAttendAndTellDecoder
from caption.search import Greedy

PHOTO = tiny_captioner.photo()


def test_a_word_that_depends_on_its_region_follows_the_attention():
    model = planted.captioner([0.1, 0.6, 0.1, 0.1, 0.1, 0.0], [0.0, 0.1, 0.8, 0.1, 0.0, 0.0])
    result = force_everywhere(model, planted.photo(), "two", Greedy(2))
    assert result.step == 1
    assert result.words == [["zero", "one", "two"], ["three", "four", "five"]]
    assert result.probability.shape == (ROWS, COLS)
    assert result.probability.argmax() == 2
    assert len(result.plot(style="paper").axes) == 2
    result.caption.image = None
    with pytest.raises(ValueError, match="no photo"):
        result.plot()


def heads() -> Captioner:
    return tiny_captioner.captioner(
        decoder=ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=4), 6, 7)
    )


@pytest.mark.parametrize("make", [tiny_captioner.captioner, heads])
def test_each_region_is_what_an_intervention_there_gives(make: Callable[[], Captioner]):
    model = make()
    result = force_everywhere(model, PHOTO, 2)
    for row, col in ((0, 0), (3, 5), (7, 7)):
        forced = intervene(model, PHOTO, Force((row, col), at=2), search=Greedy(8))
        assert forced.original.words[:2] == result.caption.words[:2]
        assert forced.changed_log_probs.tokens[2] in (result.words[row][col], "<end>")
        if forced.original.words == result.caption.words:
            under = np.exp(forced.original_log_probs.under[2])
            assert result.probability[row, col] == pytest.approx(under, rel=1e-4)


def test_areas_are_connected_along_edges_not_corners():
    found = word_areas([["a", "a", "b"], ["b", "a", "b"], ["a", "b", "b"]])
    assert [(word, len(cells)) for word, cells in found] == [("b", 4), ("a", 3), ("b", 1), ("a", 1)]
    assert sorted(map(tuple, found[1][1])) == [(0, 0), (0, 1), (1, 1)]


def test_each_large_area_bears_its_word_once_and_within_itself():
    words = [["dog"] * 6 for _ in range(3)] + [["grass"] * 6 for _ in range(3)]
    words[0][0] = "caterpillar"  # too near to the edge to be written
    caption = caption_of(["a", "dog"], size=(120, 120), grid=(6, 6))
    fig = ForcedStep(caption, 1, words, np.zeros((6, 6), np.float32)).plot(tiny_captioner.photo(120, 120))
    map_axes, word_axes = fig.axes
    assert [text.get_text() for text in fig.texts] == ["a …"]
    assert [ax.get_title() for ax in fig.axes] == ["dog", "and if it looked there?"]
    places = {text.get_text(): text.get_position() for text in word_axes.texts}
    assert places["dog"][1] < 60 < places["grass"][1]
    assert "caterpillar" not in places
    assert map_axes.images
    assert word_axes.get_xlim() == (0, 120)
