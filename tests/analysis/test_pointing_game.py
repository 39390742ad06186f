"""The pointing game on maps drawn by hand; grids and images are not square."""

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caption.analysis.covered_cells import coverage
from caption.analysis.pointing_game import ground, point
from caption.data.boxes import Boxes
from caption.result import Caption
from caption.text.mentions import Mention, find_mentions

# Two rows of three cells, 20 pixels wide and 10 high: centres at x = 20, 40, 60 and y = 25, 35.
GRID = (2, 3)
COVERED = (10.0, 20.0, 70.0, 40.0)


def caption_of(words: list[str], weights: np.ndarray, box: tuple[float, ...] = COVERED) -> Caption:
    return Caption(" ".join(words), words, weights, 0.0, np.zeros(len(words)), box)


def looking_at(cell: tuple[int, int], grid: tuple[int, int] = GRID) -> np.ndarray:
    weights = np.full(grid, 0.1)
    weights[cell] = 1 - weights.sum() + 0.1
    return weights


def written(sentence: str, cells: dict[int, tuple[int, int]]) -> Caption:
    """A caption that attends to the lower left cell, except for the words with the given indices."""
    words = sentence.split()
    return caption_of(words, np.stack([looking_at(cells.get(k, (1, 0))) for k in range(len(words))]))


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
        ("a hot dog bowl by a dog bowl and a Dog", DOGS, [("hot dog", 2), ("DOG bowl", 7), ("dog", 10)]),
    ],
)
def test_mentions_are_the_longest_names_at_their_last_word(
    sentence: str, boxes: Boxes, mentions: list[tuple[str, int]]
) -> None:
    found = find_mentions(sentence.split(), boxes)
    assert found == [Mention(name, word, tuple(boxes[name])) for name, word in mentions]


class TestGeometry:
    @pytest.mark.parametrize(
        ("cell", "centre"), [((0, 0), (20, 25)), ((0, 2), (60, 25)), ((1, 0), (20, 35)), ((1, 2), (60, 35))]
    )
    def test_the_point_is_the_centre_of_the_greatest_cell(
        self, cell: tuple[int, int], centre: tuple[float, float]
    ) -> None:
        assert point(looking_at(cell), COVERED) == centre

    @settings(deadline=None, max_examples=60)  # slow on a busy machine
    @given(
        st.integers(1, 4),
        st.integers(1, 4),
        st.lists(st.tuples(*[st.integers(-3, 28)] * 4), max_size=4),
    )
    def test_coverage_equals_counting_pixels(
        self, rows: int, cols: int, corners: list[tuple[int, int, int, int]]
    ) -> None:
        """Cells of 6 x 4 pixels from (2, 1) on, and boxes at whole pixels."""
        boxes = [(min(a, b), min(c, d), max(a, b), max(c, d)) for a, b, c, d in corners]
        painted = np.zeros((rows * 4, cols * 6))
        for y in range(rows * 4):
            for x in range(cols * 6):
                middle_x, middle_y = x + 2.5, y + 1.5
                painted[y, x] = any(l < middle_x < r and t < middle_y < b for l, t, r, b in boxes)  # noqa: E741
        expected = painted.reshape(rows, 4, cols, 6).mean(axis=(1, 3))
        covered = (2.0, 1.0, 2.0 + cols * 6, 1.0 + rows * 4)
        assert coverage(rows, cols, covered, boxes) == pytest.approx(expected)


class TestGround:
    # The circle's box holds the centres of the last two cells of the upper row: chance 2/6. The square's
    # holds that of the lower left cell: 1/6.
    BOXES: ClassVar[Boxes] = {
        "red circle": [(35.0, 20.0, 70.0, 30.0)],
        "blue square": [(10.0, 30.0, 30.0, 40.0)],
        "red star": [],
    }

    def test_hits_chance_and_mass_by_hand(self) -> None:
        caption = written("a red circle above a blue square", {2: (0, 2), 6: (0, 0)})
        circle, square = ground([(caption, self.BOXES)]).pointings
        assert (circle.mention.name, circle.hit) == ("red circle", 1)
        assert circle.chance == pytest.approx(2 / 6)
        # 3/4 of the second cell and all of the third: 0.75 · 0.1 + 0.5; of a uniform map 1.75 / 6.
        assert circle.mass == pytest.approx(0.575)
        assert circle.mass_chance == pytest.approx(1.75 / 6)
        assert (square.mention.name, square.hit) == ("blue square", 0)
        assert square.chance == pytest.approx(1 / 6)
        assert square.mass == pytest.approx(0.1)
        assert square.mass_chance == pytest.approx(1 / 6)

    def test_the_map_is_that_of_the_naming_word(self) -> None:
        """The maps of both neighbours, which lie in the lower left cell, do not point at the circle."""
        for word, expected in ((1, 0), (2, 1), (3, 0)):
            caption = written("a red circle above", {word: (0, 1)})
            assert ground([(caption, self.BOXES)]).accuracy == expected

    def test_numbers_are_means_over_mentions_and_absence_is_a_miss(self) -> None:
        captions = [
            (written("a red circle above a blue square", {2: (0, 2), 6: (0, 0)}), self.BOXES),
            (written("a red star", {}), self.BOXES),
            (written("nothing to see", {}), self.BOXES),
            (written("a blue square", {}), self.BOXES),
        ]
        numbers = ground(iter(captions)).to_dict()
        assert numbers == pytest.approx(
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

    def test_any_box_of_the_name_will_do(self) -> None:
        boxes = {"dog": [(10, 20, 30, 30), (50, 30, 70, 40)]}
        for cell, hit in (((0, 0), 1), ((1, 2), 1), ((0, 2), 0), ((1, 0), 0)):
            grounding = ground([(written("dog", {0: cell}), boxes)])
            assert grounding.accuracy == hit
            assert grounding.chance == pytest.approx(2 / 6)

    def test_cells_that_tie_share_the_point(self) -> None:
        weights = np.array([[[0.4, 0.0, 0.0], [0.1, 0.1, 0.4]]])
        assert ground([(caption_of(["circle"], weights), {"circle": [(10, 20, 30, 30)]})]).accuracy == 0.5

    def test_mass_is_a_share_of_the_weight_on_the_grid(self) -> None:
        """Half of the attention on a sentinel changes nothing, negative weights do not count."""
        weights = np.array([[[0.3, 0.0, 0.1], [0.1, 0.0, -0.2]]])
        grounding = ground([(caption_of(["circle"], weights), {"circle": [(10, 20, 30, 30)]})])
        assert grounding.mass == pytest.approx(0.6)
        nowhere = ground([(caption_of(["circle"], -np.ones((1, *GRID))), {"circle": [(10, 20, 30, 30)]})])
        assert nowhere.mass == 0

    def test_tolerance_lets_near_misses_count_for_hit_and_chance(self) -> None:
        caption = written("a blue square", {2: (0, 0)})
        assert ground([(caption, self.BOXES)]).accuracy == 0
        near = ground([(caption, self.BOXES)], tolerance=5)
        assert near.accuracy == 1
        assert near.chance == pytest.approx(2 / 6)

    def test_nothing_mentioned_gives_zeros(self) -> None:
        nothing = ground([])
        assert set(nothing.to_dict().values()) == {0.0}
        assert nothing.interval() == (0, 1)
