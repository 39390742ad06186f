"""Plots on given axes: alignment matrices and gates."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.captions import caption_of
from matplotlib.figure import Figure

from caption.visualize import alignment_matrix, gate_plot


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
