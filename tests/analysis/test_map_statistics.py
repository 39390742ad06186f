"""Statistics of maps; the scores of an evaluation are tested in tests/training/test_evaluator.py."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import planted

from caption.analysis.map_statistics import changes, coverage, entropies, evenness, measure_maps, unseen
from caption.core.regions import WeightProperties
from caption.results.caption import Caption

STILL = [[[0.5, 0.5, 0], [0, 0, 0]], [[0.5, 0.5, 0], [0, 0, 0]], [[0, 0.5, 0], [0, 0, 0.5]]]


def with_maps(maps: object) -> Caption:
    return planted.caption_of(" ".join(["dog"] * len(maps)), maps)


def test_entropy_in_nats():
    even, one = np.full((1, 2, 3), 1 / 6), np.eye(6).reshape(6, 2, 3)
    assert entropies(with_maps(even)) == pytest.approx([math.log(6)])
    assert entropies(with_maps(one)) == pytest.approx([0] * 6)
    assert entropies(with_maps(STILL)) == pytest.approx([math.log(2)] * 3)


def test_entropy_uses_the_captions_properties():
    with_sentinel = replace(
        with_maps([[[0.25, 0.25, 0], [0, 0, 0]]]), properties=WeightProperties(sentinel=True)
    )
    assert entropies(with_sentinel) == pytest.approx([1.5 * math.log(2)])  # the sentinel has the other half
    assert measure_maps([with_sentinel])["attention_entropy_max"] == math.log(7)
    properties = WeightProperties(sums_to_one=False, signed=True)
    signed = replace(with_maps([[[0.6, -0.6, 0], [0, 0, 0]]]), properties=properties)
    assert entropies(signed) == pytest.approx([math.log(2)])
    assert coverage(signed) == pytest.approx(np.array([[0.6, 0.6, 0], [0, 0, 0]]))


def test_captions_without_words_have_no_maps():
    none = with_maps(np.zeros((0, 2, 3)))
    assert entropies(none).shape == (0,)
    assert changes(none).shape == (0,)
    assert np.isnan([evenness(none), unseen(none)]).all()
    numbers = measure_maps([none])
    assert numbers.pop("attention_entropy_max") == math.log(6)
    assert set(numbers.values()) == {0}


def test_means_are_over_words_and_never_between_captions():
    captions = [with_maps(STILL), with_maps([[[1, 0, 0], [0, 0, 0]]])]
    numbers = measure_maps(captions)
    assert numbers["attention_entropy"] == pytest.approx(3 * math.log(2) / 4)
    assert numbers["attention_change"] == pytest.approx(0.25)
    # Coverage is a caption's: three of six regions of the first get no attention, and five of the second.
    assert numbers["attention_unseen"] == pytest.approx((3 / 6 + 5 / 6) / 2)
    shares = np.array([1, 1.5, 0.5]) / 3  # the second caption looks at one region alone
    assert numbers["attention_evenness"] == pytest.approx(-(shares * np.log(shares)).sum() / math.log(6) / 2)


def test_evenness_is_1_when_the_words_together_look_everywhere_alike():
    everywhere = np.eye(6).reshape(6, 2, 3)  # each word at a region of its own
    for maps, expected in (
        (everywhere, 1),
        (np.full((2, 2, 3), 1 / 6), 1),
        (everywhere[:3], math.log(3) / math.log(6)),
        (everywhere[:1].repeat(4, 0), 0),
        (np.full((1, 1, 2), 0.5), 1),
        (np.ones((3, 1, 1)), 0),  # there is nothing to choose
        (everywhere[:2] / 2, math.log(2) / math.log(6)),  # a sentinel has the rest
        (np.zeros((2, 2, 3)), 0),
    ):
        assert evenness(with_maps(maps)) == pytest.approx(expected)


def test_unseen_are_regions_that_a_whole_caption_hardly_looked_at():
    assert unseen(with_maps(STILL)) == pytest.approx(3 / 6)
    two = with_maps([[[0.05, 0.05, 0.9]], [[0.04, 0.06, 0.9]]])  # 0.09, 0.11 and 1.8
    assert unseen(two) == pytest.approx(1 / 3)
