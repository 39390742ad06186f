"""Intervals and paired tests."""

from __future__ import annotations

import numpy as np
import pytest

from caption.analysis.table import Value
from caption.metrics import evaluate
from caption.metrics.score import MetricScore
from caption.metrics.significance import compare, confidence_interval, estimate


def mean_score(values):
    return MetricScore.from_mean("m", range(len(values)), values)


def test_the_interval_of_a_mean_is_that_of_the_textbook():
    values = np.random.default_rng(1).normal(0.5, 0.1, size=400).tolist()
    low, high = confidence_interval(mean_score(values))
    error = 1.96 * np.std(values) / 20
    assert (low, high) == pytest.approx((np.mean(values) - error, np.mean(values) + error), abs=error / 10)


def test_a_steady_gain_is_seen_through_a_wide_spread():
    # Every image gains 0.01, while images differ by 0.3: only a paired test detects it.
    values = np.random.default_rng(2).uniform(0, 1, size=200)
    gains = np.random.default_rng(3).normal(0.01, 0.005, size=200)
    comparison = compare(mean_score(values.tolist()), mean_score((values + gains).tolist()))
    assert comparison.difference == pytest.approx(gains.mean())
    assert 0 < comparison.low < comparison.difference < comparison.high
    assert comparison.p_value < 0.01


def test_p_values_of_equal_systems_are_spread_evenly_and_none_is_zero():
    """With the 1 for the measured difference itself (Phipson & Smyth 2010); without it, no draw would give p = 0."""
    comparison = compare(mean_score([0.0] * 30), mean_score([1.0] * 30))
    assert comparison.p_value == pytest.approx(1 / 1001)
    small = 0
    for seed in range(200):
        first, second = np.random.default_rng(seed).normal(size=(2, 50))
        small += compare(mean_score(first.tolist()), mean_score(second.tolist())).p_value < 0.1
    assert 8 <= small <= 36  # 20 expected, give or take four standard deviations


def test_bleu_is_drawn_from_counts():
    references = {image: [f"a b c d {image % 7}", "e f g h"] for image in range(60)}
    scores = evaluate({image: f"a b c d {image % 5}" for image in references}, references, "none")
    for name in scores:
        low, high = confidence_interval(scores.score(name))
        assert low < scores[name] < high
    missing = MetricScore("m", None, "no Java")
    assert confidence_interval(missing) is compare(missing, mean_score([0.1])) is None


def test_one_image_has_no_interval():
    score = mean_score([0.4])
    assert confidence_interval(score) is compare(score, mean_score([0.5])) is None
    of_words = estimate([0.25, 0.75], [3, 3])
    assert of_words.mean == 0.5
    assert np.isnan([of_words.low, of_words.high]).all()
    assert str(Value(of_words)) == "0.500"
    assert str(Value(estimate([0.25, 0.75], [3, 4]))) == "0.500 [0.250, 0.750]"
