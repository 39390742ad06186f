"""The alignment matrix: words by regions, and words by words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.captions import caption_of
from PIL import Image

from caption.core.regions import WeightProperties
from caption.results.caption import Caption

WORDS = ["a", "$x$ _cat", "sits"]


def caption(signed: bool = False) -> Caption:
    weights = np.random.default_rng(0).random((3, 2, 4)).astype(np.float32) - 0.5 * signed
    return caption_of(WORDS, weights, (30, 20), properties=WeightProperties(signed=signed))


def test_a_row_for_each_word_and_a_column_for_each_region():
    fig = caption().plot_matrix()
    fig.draw_without_rendering()
    (ax,) = fig.axes
    np.testing.assert_array_equal(ax.images[0].get_array(), caption().weights.reshape(3, 8))
    assert ax.images[0].get_clim() == (0, pytest.approx(caption().weights.max()))
    colours = ax.images[0].to_rgba(np.array([[0, caption().weights.max()]]))[0]
    assert colours.tolist() == [[0, 0, 0, 1], [1, 1, 1, 1]]  # black to white
    assert [label.get_text() for label in ax.get_yticklabels()] == WORDS
    assert [label.get_text() for label in ax.get_xticklabels()] == ["row 1", "row 2"]
    assert ax.get_xticks().tolist() == [1.5, 5.5]  # the middles of four columns each
    assert "2×4 regions" in ax.get_title()
    (signed,) = caption(signed=True).plot_matrix().axes
    most = np.abs(caption(signed=True).weights).max()
    assert signed.images[0].get_clim() == (pytest.approx(-most), pytest.approx(most))
    assert signed.images[0].get_cmap().name == "PuOr_r"


def test_below_it_a_matrix_for_each_layer_and_head_of_self_attention():
    weights = np.tril(np.random.default_rng(0).random((2, 3, 3, 3))).astype(np.float32)
    fig = replace(caption(), self_attention=tuple(weights)).plot_matrix()
    fig.draw_without_rendering()
    titles = [ax.get_title().split(":")[0] for ax in fig.axes[1:]]
    assert titles == [f"layer {n}, head {m}" for n in range(2) for m in range(3)]
    np.testing.assert_array_equal(fig.axes[5].images[0].get_array(), weights[1, 1])
    assert [label.get_text() for label in fig.axes[1].get_yticklabels()] == WORDS
    assert [label.get_text() for label in fig.axes[6].get_xticklabels()] == ["(start)", *WORDS[:-1]]


def test_the_page_has_the_matrix_and_a_row_of_it_is_a_word(show):
    heads = np.array([[[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]], np.float32)
    page = show(replace(caption(), image=Image.new("RGB", (30, 20)), self_attention=(heads,)).to_html())
    assert page.run("document.querySelectorAll('.satt-of-word').length") == 0  # built when it is opened
    page.run("document.querySelector('.satt-alignment').open = true")
    page.wait_for("document.querySelectorAll('.satt-of-word').length == 6")
    assert page.text(".satt-matrices figcaption") == "2 × 4 regions, row after row"
    assert page.text(".satt-matrices figcaption", 1) == "layer 0, head 0: words fed so far"
    names = page.run("[...document.querySelectorAll('.satt-columns span')].map(each => each.textContent)")
    assert names == ["", "", "(start)", *WORDS[:-1]]
    drawn = page.run("""[...document.querySelectorAll('.satt-of-word canvas')].map(canvas => {
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, 1).data;
        return [...pixels].filter((_, place) => place % 4 === 3);
    })""")
    weights = caption().weights.reshape(3, 8)
    np.testing.assert_allclose(drawn[:3], 255 * weights / weights.max(), atol=3)
    np.testing.assert_allclose(drawn[3:], 255 * heads[0], atol=3)
    page.hover(".satt-of-word", 1)
    assert page.pressed() == [WORDS[1]]
    page.hover(".satt-of-word", 5)
    assert page.pressed() == [WORDS[2]]
    assert page.run("[...document.querySelectorAll('.satt-of-word.satt-current')].length") == 2


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"must be \(heads, 3, 3\) in each layer, not \[\(1, 2, 2\)\]"):
        replace(caption(), self_attention=(np.ones((1, 2, 2)),))
    with pytest.raises(ValueError, match="without words has no matrix"):
        caption_of([]).plot_matrix()
