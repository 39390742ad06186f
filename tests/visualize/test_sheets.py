"""Contact sheets, comparisons, alignment matrices and gate plots show what their captions hold."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from caption.result import Caption
from caption.visualize import alignment_matrix, compare_captions, contact_sheet, gate_plot
from caption.visualize.contact import summary_map

WIDE, TALL = (300, 200), (160, 240)


def caption_of(words, weights, size=WIDE, **fields):
    weights = np.asarray(weights, dtype=float)
    log_probs = np.full(len(words), -0.5)
    return Caption(" ".join(words), words, weights, -3.0, log_probs, (0, 0, *size), **fields)


@pytest.fixture
def dog():
    weights = [[[0.7, 0.1, 0.2], [0, 0, 0]], [[0, 0.2, 0.2], [0.2, 0.2, 0.2]]]
    return caption_of(["$dog$", "runs"], weights, gates=[0.25, 0.75])


def test_a_sheet_shows_every_photo_its_map_and_its_caption_on_one_scale(dog):
    cat = caption_of(["cat"], np.full((1, 4, 4), 1 / 16), TALL)
    photos = [Image.new("RGB", WIDE), Image.new("RGB", TALL)]
    fig = contact_sheet([dog, cat], photos, columns=1)
    first, first_map, second, second_map, legend = fig.axes
    assert [text.get_text() for text in fig.texts] == ["$dog$ runs", "cat"]
    assert [len(ax.images) for ax in fig.axes[:4]] == [1, 2, 1, 2]
    assert first.get_xlim() == (0, WIDE[0])
    assert second.get_xlim() == (0, TALL[0])
    high = float(np.float32(0.7))
    assert first_map.images[1].get_clim() == second_map.images[1].get_clim() == (0, high)
    np.testing.assert_allclose(first_map.images[1].get_array(), [[0.7, 0.2, 0.2], [0.2, 0.2, 0.2]], rtol=1e-6)
    assert "one scale for all photos" in legend.texts[0].get_text()


def test_summaries_go_over_words(dog):
    np.testing.assert_allclose(summary_map(dog, "max"), [[0.7, 0.2, 0.2], [0.2, 0.2, 0.2]], rtol=1e-6)
    np.testing.assert_allclose(summary_map(dog, "mean"), [[0.35, 0.15, 0.2], [0.1, 0.1, 0.1]], rtol=1e-6)
    silent = caption_of([], np.zeros((0, 2, 3)))
    assert summary_map(silent, "max").tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_sheet_uses_the_photos_that_captions_carry(dog):
    dog.image = Image.new("RGB", WIDE)
    assert len(contact_sheet([dog, dog, dog, dog]).axes) == 9


@pytest.mark.parametrize(
    ("number", "arguments", "said"),
    [
        (0, {}, "at least one"),
        (1, {}, "carry no photo"),
        (2, {"images": [Image.new("RGB", WIDE)]}, "2 captions need as many photos, not 1"),
        (1, {"images": [Image.new("RGB", WIDE)], "columns": 0}, "columns"),
        (1, {"images": [Image.new("RGB", WIDE)], "summary": "sum"}, "summary"),
    ],
)
def test_a_sheet_that_cannot_be_made_says_why(dog, number, arguments, said):
    with pytest.raises(ValueError, match=said):
        contact_sheet([dog] * number, **arguments)


@pytest.mark.parametrize("columns", [None, 2, 4])
def test_soft_stands_above_hard_in_equal_panels(dog, columns):
    hard = caption_of(["a", "dog", "runs"], np.full((3, 2, 3), 1 / 6), locations=[[0, 1], [1, 2], [0, 0]])
    fig = compare_captions({"soft": dog, "hard": hard}, Image.new("RGB", WIDE), columns=columns)
    upper, lower = fig.subfigs
    assert [ax.get_title() for ax in upper.axes[:-1]] == ["soft", "$dog$", "runs"]
    assert [ax.get_title() for ax in lower.axes[:-1]] == ["hard", "a", "dog", "runs"]
    fig.draw_without_rendering()
    boxes = [[ax.get_window_extent() for ax in part.axes[:3]] for part in (upper, lower)]
    for above, below in zip(*boxes, strict=True):
        assert above.y0 > below.y1
        np.testing.assert_allclose([above.x0, above.width], [below.x0, below.width], atol=1)


def test_nothing_cannot_be_compared():
    with pytest.raises(ValueError, match="nothing to compare"):
        compare_captions({}, Image.new("RGB", WIDE))


def test_the_matrix_holds_alpha_word_by_region(dog):
    ax = Figure().add_subplot()
    assert alignment_matrix(ax, dog) is ax
    np.testing.assert_array_equal(ax.images[0].get_array(), dog.weights.reshape(2, 6))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["$dog$", "runs"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2"]
    assert ax.get_xticks().tolist() == [0, 3]
    assert "black α = 0.7" in ax.get_xlabel()


def test_the_matrix_needs_words():
    with pytest.raises(ValueError, match="without words"):
        alignment_matrix(Figure().add_subplot(), caption_of([], np.zeros((0, 2, 2))))


def test_gates_are_bars_from_nothing_to_all(dog):
    ax = Figure().add_subplot()
    assert gate_plot(ax, dog) is ax
    assert [bar.get_height() for bar in ax.patches] == [0.25, 0.75]
    assert ax.get_ylim() == (0, 1)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["$dog$", "runs"]


def test_without_a_gate_there_is_no_gate_plot():
    with pytest.raises(ValueError, match="without a gate"):
        gate_plot(Figure().add_subplot(), caption_of(["dog"], np.ones((1, 1, 1))))
