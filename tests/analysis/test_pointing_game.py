"""The pointing game on maps drawn by hand, as numbers and as a figure; grids and images are not square."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.captions import caption_of as drawn
from matplotlib.patches import Rectangle
from PIL import Image

from caption.analysis.pointing_game import Grounding, best_map, ground, point
from caption.core.errors import DataError
from caption.data.boxes import Boxes
from caption.results.caption import Caption
from caption.text.mentions import Mention, find_mentions

# Two rows of three cells, 20 pixels wide and 10 high: centres at x = 20, 40, 60 and y = 25, 35.
GRID = (2, 3)
COVERED = (10.0, 20.0, 70.0, 40.0)
# The circle's box holds the centres of the last two cells of the upper row: chance 2/6. The square's
# holds that of the lower left cell: 1/6.
BOXES: Boxes = {
    "red circle": [(35.0, 20.0, 70.0, 30.0)],
    "blue square": [(10.0, 30.0, 30.0, 40.0)],
    "red star": [],
}
UPPER_LEFT: Boxes = {"circle": [(10, 20, 30, 30)]}


def caption_of(words: list[str], weights: np.ndarray) -> Caption:
    return Caption(" ".join(words), words, weights, 0.0, np.zeros(len(words)), COVERED)


def looking_at(cell: tuple[int, int]) -> np.ndarray:
    weights = np.full(GRID, 0.1)
    weights[cell] = 0.5
    return weights


def written(sentence: str, cells: dict[int, tuple[int, int]] | None = None) -> Caption:
    """A caption that attends to the lower left cell, except for the words with the given indices."""
    words = sentence.split()
    return caption_of(words, np.stack([looking_at((cells or {}).get(k, (1, 0))) for k in range(len(words))]))


TWO = {"red circle": [(0, 0, 1, 1)], "blue square": [(2, 2, 3, 3), (4, 4, 5, 5)], "red star": []}
DOGS: Boxes = {"dog": [], "hot dog": [], "DOG bowl": []}


@pytest.mark.parametrize(
    ("sentence", "boxes", "mentions"),
    [
        ("a red circle above a blue square", TWO, [("red circle", 2), ("blue square", 6)]),
        ("a red star", TWO, [("red star", 2)]),  # without boxes
        ("a green circle and a red square", TWO, []),
        ("", TWO, []),
        ("dog", {}, []),
        ("黑 色 的 男 人 和 狗", {"男人": [], "狗": []}, [("男人", 4), ("狗", 6)]),
        ("黑色 的 男人 和 狗", {"男人": [], "狗": []}, [("男人", 2), ("狗", 4)]),
        ("穿 t 恤 的 人", {"T恤": []}, [("T恤", 2)]),
        ("a hot dog bowl by a dog bowl and a Dog", DOGS, [("hot dog", 2), ("DOG bowl", 7), ("dog", 10)]),
    ],
)
def test_mentions_are_the_longest_names_at_their_last_word(
    sentence: str, boxes: Boxes, mentions: list[tuple[str, int]]
) -> None:
    found = find_mentions(sentence.split(), boxes)
    assert found == [Mention(name, word, tuple(boxes[name])) for name, word in mentions]


def test_the_point_is_the_centre_of_the_greatest_cell() -> None:
    assert [point(looking_at(cell), COVERED) for cell in ((0, 2), (1, 0))] == [(60, 25), (20, 35)]


def test_hits_chance_and_mass_by_hand() -> None:
    caption = written("a red circle above a blue square", {2: (0, 2), 6: (0, 0)})
    circle, square = ground([(caption, BOXES)]).pointings
    # Of the circle 3/4 of the second cell and all of the third: 0.75 · 0.1 + 0.5; of a uniform map 1.75 / 6.
    for one, name, numbers in (
        (circle, "red circle", [1, 2 / 6, 0.575, 1.75 / 6]),
        (square, "blue square", [0, 1 / 6, 0.1, 1 / 6]),
    ):
        assert one.mention.name == name
        assert [one.hit, one.chance, one.mass, one.mass_chance] == pytest.approx(numbers)


def test_the_map_is_that_of_the_naming_word() -> None:
    """The maps of both neighbours, which lie in the lower left cell, do not point at the circle."""
    for word, expected in ((1, 0), (2, 1), (3, 0)):
        caption = written("a red circle above", {word: (0, 1)})
        assert ground([(caption, BOXES)]).accuracy == expected


def test_numbers_are_means_over_mentions_and_absence_is_a_miss() -> None:
    captions = [
        (written("a red circle above a blue square", {2: (0, 2), 6: (0, 0)}), BOXES),
        (written("a red star"), BOXES),
        (written("nothing to see"), BOXES),
        (written("a blue square"), BOXES),
    ]
    assert ground(iter(captions)).to_dict() == pytest.approx(
        {
            "pointing_accuracy": 2 / 4,
            "pointing_chance": (2 / 6 + 1 / 6 + 0 + 1 / 6) / 4,
            "attention_in_box": (0.575 + 0.1 + 0 + 0.5) / 4,
            "attention_in_box_chance": (1.75 / 6 + 1 / 6 + 0 + 1 / 6) / 4,
            "pointing_mentions": 4,
            "pointing_absent": 1,
        }
    )
    grounding = ground(captions)
    assert grounding.present.accuracy == pytest.approx(2 / 3)
    assert [pointing.caption for pointing in grounding.pointings] == [0, 0, 1, 3]
    nothing = ground([])
    assert set(nothing.to_dict().values()) == {0.0}
    assert nothing.interval() == (0, 1)


def test_any_box_of_the_name_will_do() -> None:
    boxes = {"dog": [(10, 20, 30, 30), (50, 30, 70, 40)]}
    for cell, hit in (((0, 0), 1), ((1, 2), 1), ((0, 2), 0), ((1, 0), 0)):
        grounding = ground([(written("dog", {0: cell}), boxes)])
        assert grounding.accuracy == hit
        assert grounding.chance == pytest.approx(2 / 6)


def test_cells_that_tie_share_the_point_and_the_mass_is_a_share_of_the_weight_on_the_grid() -> None:
    """Half of the attention on a sentinel changes nothing, negative weights do not count."""
    tied, signed = [[0.4, 0.0, 0.0], [0.1, 0.1, 0.4]], [[0.3, 0.0, 0.1], [0.1, 0.0, -0.2]]
    assert ground([(caption_of(["circle"], np.array([tied])), UPPER_LEFT)]).accuracy == 0.5
    assert ground([(caption_of(["circle"], np.array([signed])), UPPER_LEFT)]).mass == pytest.approx(0.6)
    assert ground([(caption_of(["circle"], -np.ones((1, *GRID))), UPPER_LEFT)]).mass == 0


def test_tolerance_lets_near_misses_count_for_hit_and_chance() -> None:
    caption = written("a blue square", {2: (0, 0)})
    assert ground([(caption, BOXES)]).accuracy == 0
    near = ground([(caption, BOXES)], tolerance=5)
    assert near.accuracy == 1
    assert near.chance == pytest.approx(2 / 6)


PHOTO = Image.new("RGB", (80, 60))


@pytest.mark.parametrize(
    ("box", "said"),
    [
        ((60, 30, 20, 20), "has no area, or is x, y, width, height"),
        ((30, 20, 30, 40), "has no area"),
        ((0.1, 0.2, 0.5, 0.6), "looks like fractions"),
        ((10, 20, float("nan"), 40), "not a finite number"),
        ((10, 20, 30), "four numbers"),
        ((90, 20, 100, 40), "lies outside of the photo, 80 x 60 pixels"),
        ((100, 300, 800, 900), "lies outside"),
        ((10, 50, 300, 1000), "coordinates from 0 to 1000"),
    ],
)
def test_boxes_in_another_convention_are_refused(box: tuple[float, ...], said: str) -> None:
    caption = written("a dog")
    caption.image = PHOTO
    for measure in (ground, best_map):
        with pytest.raises(DataError, match=f"the boxes of caption 0: .*{said}"):
            measure([(caption, {"dog": [box]})])
    if said != "coordinates from 0 to 1000":  # drawn, and cut off
        with pytest.raises(ValueError, match=said):
            caption.plot(boxes={"dog": [box]})


def test_some_boxes_may_reach_beyond_the_photo() -> None:
    caption = written("a dog")
    caption.image = PHOTO
    assert len(ground([(caption, {"dog": [(10, 20, 85, 40), (10, 20, 30, 60.5)]})])) == 1


def test_a_word_that_is_not_said_is_named() -> None:
    caption = written("a dog")
    grounding = ground([(caption, {"zebra": [(10, 20, 30, 30)], "cat": []})])
    assert repr(grounding) == "Grounding(0 mentions: zebra: not in the caption)"
    assert "<td>zebra: not in the caption</td><td>0</td><td>–</td>" in grounding._repr_html_()
    for boxes in ({"zebra": [(10, 20, 30, 30)]}, {"dog": []}):
        with pytest.raises(DataError, match="not in the caption"):
            best_map([(caption, boxes)])


# -- figure and table --------------------------------------------------------------------------------------------


@pytest.fixture
def grounding() -> Grounding:
    weights = np.full((5, 2, 3), 0.1)
    weights[1, 0, 1] = weights[3, 0, 0] = weights[4, 0, 0] = 0.5
    words, photo = ["a", "dog", "red", "ball", "<cat>"], Image.new("RGB", (60, 40), "grey")
    boxes: Boxes = {"dog": [(20, 0, 40, 20)], "red ball": [(40, 20, 60, 40)], "<cat>": []}
    return ground([(drawn(words, weights, (60, 40), image=photo), boxes)])


def frames(ax) -> set[tuple[float, ...]]:
    rectangles = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    return {(*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in rectangles}


def test_every_mention_has_its_map_its_boxes_and_the_cell_that_is_pointed_at(grounding: Grounding) -> None:
    dog, ball, cat = grounding.plot(style="cells").axes
    assert [ax.get_title() for ax in (dog, ball, cat)] == [
        "dog: hit",
        "ball: miss",
        "<cat>: not in the photo",
    ]
    assert frames(dog) == {(20, 0, 20, 20)}
    assert frames(ball) == {(0, 0, 20, 20), (40, 20, 20, 20)}
    assert frames(cat) == {(0, 0, 20, 20)}
    np.testing.assert_allclose(ball.images[1].get_array(), grounding.measured[0].weights[3])
    assert len(grounding.present.plot(1).axes) == 1
    table = grounding._repr_html_()
    assert "&lt;cat&gt;" in table
    assert "<tr><td>all</td><td>3</td><td>0.33</td>" in table
    assert repr(grounding).startswith(
        "Grounding(3 mentions: pointing 0.33 (chance 0.11), attention in boxes 0.20"
    )
    with pytest.raises(ValueError, match="no mentions to draw"):
        grounding.plot(0)
    photo, grounding.measured[0].image = grounding.measured[0].image, None
    with pytest.raises(ValueError, match="carry no photo"):
        grounding.plot()
    assert len(grounding.plot(images=[photo]).axes) == 3
