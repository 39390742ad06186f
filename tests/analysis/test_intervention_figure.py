"""An intervention as a figure and as a table: two captions, every word's probability, the steps that were changed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.captions import caption_of
from matplotlib.colors import same_color
from PIL import Image

from caption.analysis.interventions import Force, ForcedStep, Intervention, LogProbs
from caption.analysis.interventions.forced_step_figure import word_areas
from caption.analysis.interventions.intervene import CHANGED


@pytest.fixture
def result() -> Intervention:
    shape = {"size": (30, 20), "grid": (2, 3)}
    original = caption_of(["red", "dog"], image=Image.new("RGB", (30, 20)), **shape)
    changed = caption_of(["red", "<b>", "runs"], finished=False, **shape)
    return Intervention(
        (Force((0, 0), at=1),),
        original,
        changed,
        LogProbs(("red", "dog", "<end>"), np.array([-0.001, -1.0, -0.3]), np.array([-0.001, -np.inf, -0.4])),
        LogProbs(("red", "<b>", "runs"), np.array([-0.1, -4.0, -2.0]), np.array([-0.02, -0.56, -10.04])),
        steps=(1, 3),
    )


def panels(part) -> dict[str, tuple[list[str], bool]]:
    """The log-probability in each word's panel, and whether it is framed, by the panel's title."""
    return {
        ax.get_title(): (
            [text.get_text() for text in ax.texts if text.get_text().startswith("log p")],
            ax.spines["left"].get_visible() and same_color(ax.spines["left"].get_edgecolor(), CHANGED),
        )
        for ax in part.axes[1:-1]
    }


def test_the_original_is_above_with_its_words_new_probabilities_and_changed_steps_are_framed(result):
    above, below = result.plot().subfigs
    assert [part.axes[0].get_title() for part in (above, below)] == ["as it is", "changed"]
    assert panels(above) == {"red": (["log p 0.0 → 0.0"], False), "dog": (["log p −1.0 → −∞"], False)}
    assert panels(below) == {
        "red": (["log p 0.0"], False), "<b>": (["log p −0.6"], True), "runs": (["log p −10.0"], False),
    }  # fmt: skip


def test_options_are_those_of_a_captions_figure_and_named_words_keep_their_numbers(result):
    blue = Image.new("RGB", (30, 20), "blue")
    above, below = result.plot(blue, words=["runs", "dog"], style="cells").subfigs
    assert panels(above) == {"dog": (["log p −1.0 → −∞"], False)}
    assert panels(below) == {"runs": (["log p −10.0"], False)}
    assert above.axes[1].images[1].get_interpolation() == "nearest"
    assert tuple(below.axes[0].images[0].get_array()[0, 0]) == (0, 0, 255)
    result.original.image = None
    with pytest.raises(ValueError, match="carry no photo"):
        result.plot()


def test_the_table_holds_both_captions_and_shades_what_moved(result):
    table = result._repr_html_()
    rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    assert [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows] == [
        ["as it is", "red", "dog", "&lt;end&gt;", "sum"],
        ["log p", "0.00", "−1.00", "−0.30", "−1.30"],
        ["under the changes", "0.00", "−∞", "−0.40", "−∞"],
        ["changed", "red", "<u>&lt;b&gt;</u>", "runs", "sum"],
        ["log p", "−0.02", "−0.56", "−10.04", "−10.62"],
        ["without the changes", "−0.10", "−4.00", "−2.00", "−6.10"],
    ]
    assert "&#x27;dog&#x27; becomes &#x27;&lt;b&gt;&#x27;" in table
    shades = [[float(s) for s in re.findall(r"127, 14, ([\d.]+)\)", row)] for row in rows]
    assert shades[1] == [0, 0, 0]
    assert shades[2] == [0, 0.7, pytest.approx(0.7 * (1 - np.exp(-0.1)), abs=0.01)]


# -- one word with the attention forced to every region ------------------------------------------------------------


def test_areas_are_connected_along_edges_not_corners():
    found = word_areas([["a", "a", "b"], ["b", "a", "b"], ["a", "b", "b"]])
    assert [(word, len(cells)) for word, cells in found] == [("b", 4), ("a", 3), ("b", 1), ("a", 1)]
    assert sorted(map(tuple, found[1][1])) == [(0, 0), (0, 1), (1, 1)]


def test_each_large_area_bears_its_word_once_and_within_itself():
    words = [["dog"] * 6 for _ in range(3)] + [["grass"] * 6 for _ in range(3)]
    words[0][0] = "caterpillar"  # too near to the edge to be written
    caption = caption_of(["a", "dog"], size=(120, 120), grid=(6, 6))
    fig = ForcedStep(caption, 1, words, np.zeros((6, 6), np.float32)).plot(Image.new("RGB", (120, 120)))
    map_axes, word_axes = fig.axes
    assert [text.get_text() for text in fig.texts] == ["a …"]
    assert [ax.get_title() for ax in fig.axes] == ["dog", "and if it looked there?"]
    places = {text.get_text(): text.get_position() for text in word_axes.texts}
    assert places["dog"][1] < 60 < places["grass"][1]
    assert "caterpillar" not in places
    assert map_axes.images
    assert word_axes.get_xlim() == (0, 120)
