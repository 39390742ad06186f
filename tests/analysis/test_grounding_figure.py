"""Grounding and erasure as figures, tables and lines: mentions with their boxes, curves side by side."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.captions import caption_of
from matplotlib.patches import Rectangle
from PIL import Image

from caption.analysis.pointing_game import Grounding, ground

PHOTO = Image.new("RGB", (60, 40), "grey")
BOXES = {"dog": [(20, 0, 40, 20)], "red ball": [(40, 20, 60, 40)], "<cat>": []}


@pytest.fixture
def grounding() -> Grounding:
    weights = np.full((5, 2, 3), 0.1)
    weights[1, 0, 1] = weights[3, 0, 0] = weights[4, 0, 0] = 0.5
    words = ["a", "dog", "red", "ball", "<cat>"]
    caption = caption_of(words, weights, (60, 40), image=PHOTO)
    return ground([(caption, BOXES)])


def frames(ax) -> set[tuple[float, ...]]:
    return {
        (*patch.get_xy(), patch.get_width(), patch.get_height())
        for patch in ax.patches
        if isinstance(patch, Rectangle)
    }


def test_every_mention_has_its_map_its_boxes_and_the_cell_that_is_pointed_at(grounding):
    fig = grounding.plot(style="cells")
    assert [ax.get_title() for ax in fig.axes] == ["dog: hit", "ball: miss", "<cat>: not in the photo"]
    dog, ball, cat = fig.axes
    assert frames(dog) == {(20, 0, 20, 20)}
    assert frames(ball) == {(0, 0, 20, 20), (40, 20, 20, 20)}
    assert frames(cat) == {(0, 0, 20, 20)}
    np.testing.assert_allclose(ball.images[1].get_array(), grounding.measured[0].weights[3])
    assert len(grounding.plot(2).axes) == 2
    assert len(grounding.present.plot().axes) == 2


def test_what_cannot_be_drawn_is_said(grounding):
    with pytest.raises(ValueError, match="no mentions to draw"):
        grounding.plot(0)
    grounding.measured[0].image = None
    with pytest.raises(ValueError, match="carry no photo"):
        grounding.plot()
    assert len(grounding.plot(images=[PHOTO]).axes) == 3


def test_it_is_one_line_and_a_table(grounding):
    assert repr(grounding) == (
        "Grounding(3 mentions: pointing 0.33 (chance 0.11), attention in boxes 0.20 (chance 0.11))"
    )
    table = grounding._repr_html_()
    assert "&lt;cat&gt;" in table
    assert "<tr><td>dog</td><td>1</td><td>1.00</td>" in table
    assert "<tr><td>all</td><td>3</td><td>0.33</td>" in table
    assert repr(Grounding(())).startswith("Grounding(0 mentions")
