"""Plots on given axes: alignment matrices, gates, deletion and insertion curves."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.captions import caption_of
from matplotlib.figure import Figure

from caption.analysis.faithfulness.curves import FaithfulnessCurves
from caption.visualize import alignment_matrix, curve_plot, gate_plot


@pytest.fixture
def dog():
    weights = [[[0.7, 0.1, 0.2], [0, 0, 0]], [[0, 0.2, 0.2], [0.2, 0.2, 0.2]]]
    return caption_of(["$dog$", "runs"], weights, gates=[0.25, 0.75])


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


PROBABILITIES = np.array([[[0.9, 0.5, 0.2]], [[0.7, 0.3, 0.2]]])  # two words, one draw, three points


def curves() -> FaithfulnessCurves:
    curves = {
        ("deletion", "attention"): np.log(PROBABILITIES),
        ("deletion", "random"): np.log(np.concatenate([PROBABILITIES, PROBABILITIES / 2], 1)),
        ("insertion", "attention"): np.log(PROBABILITIES[..., ::-1]),
        ("insertion", "random"): np.log(PROBABILITIES[..., ::-1]),
    }
    return FaithfulnessCurves(("red", "dog"), np.array([0, 1]), (0, 4, 16), curves)


def test_a_line_per_order_at_the_mean_over_words_and_draws():
    ax = Figure().subplots()
    assert curve_plot(ax, curves(), "deletion") is ax
    attention, random = ax.get_lines()
    assert attention.get_xdata().tolist() == [0, 4, 16]
    assert attention.get_ydata() == pytest.approx([0.8, 0.4, 0.2])
    assert random.get_ydata() == pytest.approx(np.array([0.8, 0.4, 0.2]) * 0.75)
    assert [line.get_label() for line in ax.get_lines()] == ["attention", "random"]
    assert attention.get_linestyle() != random.get_linestyle()


def test_bands_are_intervals_over_images():
    ax = Figure().subplots()
    curve_plot(ax, curves(), "deletion")
    band, _ = ax.collections
    corners = band.get_paths()[0].vertices
    at_none = corners[corners[:, 0] == 0][:, 1]
    assert (at_none.min(), at_none.max()) == pytest.approx((0.7, 0.9))


def test_the_axis_names_its_quantity_and_starts_stretched():
    ax = Figure().subplots()
    curve_plot(ax, curves(), "insertion")
    assert ax.get_xlabel() == "regions shown, of 16"
    places = ax.transData.transform([(0, 0), (4, 0), (16, 0)])[:, 0]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1", "4", "16"]
    assert "hidden" in curve_plot(Figure().subplots(), curves(), "deletion").get_xlabel()


def test_both_curves_stand_side_by_side_and_in_a_table():
    deletion, insertion = curves().plot().axes
    assert (deletion.get_title(), insertion.get_title()) == ("deletion", "insertion")
    assert [text.get_text() for text in insertion.get_legend().get_texts()] == ["attention", "random"]
    assert (
        repr(curves()) == "FaithfulnessCurves(2 words, areas under deletion: attention 0.375, random 0.281)"
    )
    table = curves()._repr_html_()
    assert "<tr><td>attention</td><td>0.375 [" in table
    assert curves().only([])._repr_html_() is None
    assert repr(curves().only([])) == "FaithfulnessCurves(0 words, areas under deletion: none)"


def test_no_words_no_curves():
    with pytest.raises(ValueError, match="no words"):
        curve_plot(Figure().subplots(), curves().only([]), "deletion")
