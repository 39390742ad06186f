"""Blind baseline maps, which ignore the image, and their grounding scores."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.planted import caption_of

from caption.analysis.baseline_maps import (
    centred,
    fit_sigma,
    mean_map,
    middle,
    other_image,
    other_word,
    uniform,
)
from caption.analysis.pointing_game import ground


def looking(*cells: int) -> np.ndarray:
    """(T, 2, 3) maps that lie on one cell each."""
    return np.eye(6)[list(cells)].reshape(len(cells), 2, 3)


def cells(redrawn: object) -> list[int]:
    return redrawn.weights.reshape(len(redrawn.words), 6).argmax(1).tolist()


def test_uniform_maps_are_at_chance():
    captions = [caption_of("one two", looking(0, 5)), caption_of("two", looking(3))]
    boxes = [{"one": [(0, 0, 5, 4)], "two": [(4, 2, 8, 8)]}] * 2
    drawn = uniform(captions)
    assert all(redrawn.weights == pytest.approx(np.full(redrawn.weights.shape, 1 / 6)) for redrawn in drawn)
    grounding = ground(zip(drawn, boxes, strict=True))
    assert len(grounding) == 3
    assert grounding.accuracy == pytest.approx(grounding.chance)
    assert grounding.mass == pytest.approx(grounding.mass_chance)


def test_the_centre_prior_is_a_gaussian_over_the_grid():
    """Centres of 2 x 3 cells lie at 1/4, 3/4 down and 1/6, 1/2, 5/6 across."""
    (drawn,) = centred([caption_of("one two", looking(0, 5))], sigma=0.2)
    expected = np.exp(-(np.array([[1 / 3, 0, 1 / 3]]) ** 2 + np.array([[0.25], [0.25]]) ** 2) / (2 * 0.2**2))
    assert drawn.weights == pytest.approx(np.stack([expected / expected.sum()] * 2))
    assert drawn.words == ["one", "two"]
    with pytest.raises(ValueError, match="positive"):
        centred([], sigma=0)


def test_sigma_is_the_root_mean_square_distance_from_the_middle():
    whole = (10.0, 0.0, 30.0, 10.0)  # 20 wide, 10 high, middle (20, 5)
    boxes = {"one": [(24, 4, 26, 6)], "two": [(19, 6, 21, 8)], "three": []}  # +0.25, 0 and 0, +0.2
    assert fit_sigma([(boxes, whole)]) == pytest.approx(np.sqrt((0.25**2 + 0.2**2) / 4))
    with pytest.raises(ValueError, match="no objects"):
        fit_sigma([({"one": []}, whole)])


def test_another_word_is_never_the_word_itself():
    captions = [caption_of("one two three four", looking(0, 1, 2, 3))] * 20
    drawn = [cells(redrawn) for redrawn in other_word(captions)]
    assert all(cell != word for cells_ in drawn for word, cell in enumerate(cells_))
    assert {cell for cells_ in drawn for cell in cells_} == {0, 1, 2, 3}
    assert [cells(redrawn) for redrawn in other_word(captions, seed=1)] != drawn
    (alone,) = other_word([caption_of("one", looking(4))])
    assert cells(alone) == [4]


def test_another_image_gives_its_maps_in_their_order():
    texts, own = ["one two", "", "one two three", "one"], [[0, 0], [], [1, 2, 3], [5]]
    captions = [caption_of(text, looking(*places)) for text, places in zip(texts, own, strict=True)]
    drawn = set()
    for seed in range(8):
        first, nothing, second, third = (cells(redrawn) for redrawn in other_image(captions, seed))
        assert nothing == []
        drawn.add(str((first, second, third)))
    # A ring: each one's maps are used once; words beyond the last repeat it.
    assert drawn == {str(([1, 2], [5, 5, 5], [0])), str(([5, 5], [0, 0, 0], [1]))}
    with pytest.raises(ValueError, match="two or more"):
        other_image(captions[:2])
    with pytest.raises(ValueError, match="on one grid"):
        other_image([captions[0], caption_of("one", np.ones((1, 3, 3)) / 9)])


def test_the_middle_is_one_cell_or_those_next_to_it():
    (odd,) = middle([caption_of("one", np.ones((1, 3, 5)))])
    assert odd.weights[0, 1, 2] == odd.weights.sum() == 1
    (even,) = middle([caption_of("one two", np.ones((2, 2, 3)))])
    assert even.weights[0] == pytest.approx(np.array([[0, 0.5, 0], [0, 0.5, 0]]))
    assert np.array_equal(even.weights[0], even.weights[1])


def test_the_mean_map_counts_every_word_once():
    captions = [caption_of("one two", looking(0, 5)), caption_of("two", looking(5))]
    for drawn, caption in zip(mean_map(captions), captions, strict=True):
        assert drawn.weights.shape == caption.weights.shape
        assert drawn.weights[0].ravel() == pytest.approx([1 / 3, 0, 0, 0, 0, 2 / 3])
    with pytest.raises(ValueError, match="one grid"):
        mean_map([caption_of("one", np.ones((1, 2, 3))), caption_of("one", np.ones((1, 3, 3)))])
    assert mean_map([]) == []


def test_maps_of_another_image_never_come_from_a_caption_of_the_same_one():
    captions = [caption_of("one two", looking(cell, cell)) for cell in (0, 1, 2, 3)]
    images = [7, 7, 4, 4]
    for seed in range(5):
        given = [cells(drawn)[0] for drawn in other_image(captions, seed, images)]
        assert given == [2, 3, 0, 1]  # the first caption gets the other image's first
    uneven = [*captions[:3], caption_of("one", looking(5))]
    assert [cells(drawn)[0] for drawn in other_image(uneven, 0, [7, 7, 7, 4])] == [5, 5, 5, 0]
    with pytest.raises(ValueError, match="two or more"):
        other_image(captions, images=[1, 1, 1, 1])
