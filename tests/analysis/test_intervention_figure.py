"""An intervention as a figure: two captions, every word's probability, the steps that were changed."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.captions import caption_of
from matplotlib.colors import same_color
from PIL import Image

from caption.analysis.interventions import Force, Intervention, LogProbs
from caption.analysis.interventions.intervene import CHANGED


@pytest.fixture
def result() -> Intervention:
    shape = {"size": (30, 20), "grid": (2, 3)}
    original = caption_of(["red", "dog"], **shape)
    changed = caption_of(["red", "cat", "runs"], finished=False, **shape)
    return Intervention(
        (Force((0, 0), at=1),),
        original,
        changed,
        LogProbs(("red", "dog", "<end>"), np.array([-0.02, -1.0, -0.3]), np.array([-0.02, -np.inf, -0.4])),
        LogProbs(("red", "cat", "runs"), np.array([-0.1, -4.0, -2.0]), np.array([-0.02, -0.56, -10.04])),
        steps=(1, 3),
    )


def panels(part):
    return part.axes[1:-1]


def notes(ax):
    return [text.get_text() for text in ax.texts if text.get_text().startswith("log p")]


def test_the_original_is_above_with_its_words_new_probabilities(result):
    above, below = result.plot(Image.new("RGB", (30, 20))).subfigs
    assert [ax.get_title() for ax in above.axes[:-1]] == ["as it is", "red", "dog"]
    assert [ax.get_title() for ax in below.axes[:-1]] == ["changed", "red", "cat", "runs"]
    assert [notes(ax) for ax in panels(above)] == [["log p 0.0 → 0.0"], ["log p −1.0 → −∞"]]
    assert [notes(ax) for ax in panels(below)] == [["log p 0.0"], ["log p −0.6"], ["log p −10.0"]]
    assert not above.axes[0].texts


def test_the_steps_that_were_changed_are_framed(result):
    above, below = result.plot(Image.new("RGB", (30, 20))).subfigs
    framed = [
        [
            ax.spines["left"].get_visible() and same_color(ax.spines["left"].get_edgecolor(), CHANGED)
            for ax in panels(part)
        ]
        for part in (above, below)
    ]
    assert framed == [[False, False], [False, True, False]]


def test_the_photo_is_the_captions_own_unless_another_is_given(result):
    with pytest.raises(ValueError, match="carry no photo"):
        result.plot()
    result.original.image = Image.new("RGB", (30, 20), "red")
    for image, colour in ((None, (255, 0, 0)), (Image.new("RGB", (30, 20), "blue"), (0, 0, 255))):
        shown = result.plot(image).subfigs[1].axes[0].images[0].get_array()
        assert tuple(shown[0, 0]) == colour


def test_a_result_draws_itself_and_named_words_keep_their_numbers(result):
    result.original.image = Image.new("RGB", (30, 20))
    above, below = result.plot(words=["runs", "dog"]).subfigs
    assert [ax.get_title() for ax in above.axes[:-1]] == ["as it is", "dog"]
    assert [ax.get_title() for ax in below.axes[:-1]] == ["changed", "runs"]
    assert notes(panels(above)[0]) == ["log p −1.0 → −∞"]
    assert notes(panels(below)[0]) == ["log p −10.0"]
    assert "\n" not in repr(result)


def test_options_go_to_the_figure_of_a_caption(result):
    part = result.plot(Image.new("RGB", (30, 20)), columns=1, style="cells").subfigs[0]
    assert panels(part)[0].images[1].get_interpolation() == "nearest"
