"""Maps by themselves; evaluation's numbers from them are tested in tests/test_evaluation.py."""

from __future__ import annotations

import math

import numpy as np
import planted
import pytest

from caption.analysis.maps import change, coverage, entropy, measure_maps, unseen

STILL = [[[0.5, 0.5, 0], [0, 0, 0]], [[0.5, 0.5, 0], [0, 0, 0]], [[0, 0.5, 0], [0, 0, 0.5]]]


def test_entropy_in_nats():
    even, one = np.full((1, 2, 3), 1 / 6), np.eye(6).reshape(6, 2, 3)
    assert entropy(even) == pytest.approx([math.log(6)])
    assert entropy(one) == pytest.approx([0] * 6)
    assert entropy(STILL) == pytest.approx([math.log(2)] * 3)
    assert entropy(np.reshape(STILL, (3, 6))) == pytest.approx([math.log(2)] * 3)


def test_coverage_sums_over_words():
    assert coverage(STILL) == pytest.approx(np.array([[1, 1.5, 0], [0, 0, 0.5]]))


def test_change_is_the_share_that_moves():
    assert change(STILL) == pytest.approx([0, 0.5])
    assert change(np.eye(4)) == pytest.approx([1, 1, 1])


def test_captions_without_words_have_no_maps():
    none = np.zeros((0, 2, 3))
    assert entropy(none).shape == (0,)
    assert change(none).shape == (0,)
    assert measure_maps([planted.told("", none)]) == {
        "attention_entropy": 0,
        "attention_entropy_max": math.log(6),
        "attention_change": 0,
        "attention_unseen": 0,
    }


def test_means_are_over_words_and_never_between_captions():
    captions = [planted.told("one two three", STILL), planted.told("one", [[[1, 0, 0], [0, 0, 0]]])]
    numbers = measure_maps(captions)
    assert numbers["attention_entropy"] == pytest.approx(3 * math.log(2) / 4)
    assert numbers["attention_change"] == pytest.approx(0.25)
    # Coverage is a caption's: three of six regions of the first are never looked at, five of the second.
    assert numbers["attention_unseen"] == pytest.approx((3 / 6 + 5 / 6) / 2)


def test_unseen_is_what_a_whole_caption_hardly_looked_at():
    assert unseen(STILL) == pytest.approx(3 / 6)
    assert unseen([[0.05, 0.05, 0.9], [0.04, 0.06, 0.9]]) == pytest.approx(1 / 3)  # 0.09, 0.11 and 1.8
    assert unseen(STILL, below=0.6) == pytest.approx(4 / 6)
    assert np.isnan(unseen(np.zeros((0, 2, 3))))
