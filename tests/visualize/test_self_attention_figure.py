"""The figure of self-attention over words."""

from __future__ import annotations

import numpy as np
import pytest

from caption.analysis.self_attention import WordMaps
from caption.visualize import plot_word_maps


def test_a_matrix_for_each_layer_and_head():
    said = ["a", "$x$ _cat", "sits"]
    weights = np.tril(np.random.default_rng(0).random((2, 3, 3, 3))).astype(np.float32)
    fig = plot_word_maps(WordMaps(said, ["(start)", *said[:-1]], tuple(weights)))
    fig.draw_without_rendering()
    assert [ax.get_title() for ax in fig.axes] == [f"layer {n}, head {m}" for n in range(2) for m in range(3)]
    np.testing.assert_array_equal(fig.axes[4].images[0].get_array(), weights[1, 1])
    assert [label.get_text() for label in fig.axes[0].get_yticklabels()] == said
    assert [label.get_text() for label in fig.axes[5].get_xticklabels()] == ["(start)", "a", "$x$ _cat"]


def test_a_caption_without_words_is_refused():
    with pytest.raises(ValueError, match="without words"):
        plot_word_maps(WordMaps([], [], ()))
