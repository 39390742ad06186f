"""Means over measurements of words, with a bootstrap over images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from caption.analysis.per_word import PerWord
from caption.metrics.significance import difference, estimate


def test_words_of_all_images_have_equal_weight():
    assert estimate([1, 1, 1, 0], [7, 7, 7, 3]).mean == 0.75


def test_the_interval_is_that_of_the_textbook_where_every_image_has_one_word():
    values = np.random.default_rng(1).normal(0.5, 0.1, size=400)
    mean, low, high = estimate(values, np.arange(400))
    error = 1.96 * values.std() / 20
    assert (low, mean, high) == pytest.approx((mean - error, values.mean(), mean + error), abs=error / 5)


def test_words_of_one_image_bring_no_more_certainty_than_one():
    few = np.random.default_rng(2).uniform(size=50)
    alone = estimate(few, np.arange(50))
    repeated = estimate(np.repeat(few, 20), np.repeat(np.arange(50), 20))
    assert repeated == pytest.approx(alone)
    independent = estimate(np.repeat(few, 20), np.arange(1000))
    assert independent.high - independent.low < (alone.high - alone.low) / 3


def test_a_difference_is_measured_on_the_same_draws():
    generator = np.random.default_rng(4)
    first = generator.normal(0, 10, size=200)
    second = first + generator.normal(0.5, 0.1, size=200)
    compared = difference(first, second, np.arange(200))
    assert compared.difference == pytest.approx(0.5, abs=0.05)
    assert 0.4 < compared.low < compared.difference < compared.high < 0.6
    assert compared.p_value < 0.01
    assert difference(second, first, np.arange(200)).difference == pytest.approx(-compared.difference)


@pytest.mark.parametrize(("values", "images"), [([], []), ([1, 2], [0]), ([[1, 2]], [[0, 0]])])
def test_there_is_one_number_and_one_image_per_word(values, images):
    with pytest.raises(ValueError, match="one number and one image per word"):
        estimate(values, images)


@dataclass(frozen=True)
class Lengths(PerWord):
    letters: np.ndarray
    tables: dict[str, np.ndarray]
    alphabet: tuple[str, ...]


def test_all_that_is_per_word_is_taken_and_the_rest_stays():
    words = ("a", "dog", "a", "cat")
    lengths = Lengths(
        words,
        np.array([0, 0, 1, 1]),
        np.array([1, 3, 1, 3]),
        {"table": np.arange(8).reshape(4, 2)},
        ("x",) * 4,
    )
    assert len(lengths) == 4
    chosen = lengths.only({"cat", "dog"})
    assert isinstance(chosen, Lengths)
    assert chosen.words == ("dog", "cat")
    assert chosen.images.tolist() == [0, 1]
    assert chosen.letters.tolist() == [3, 3]
    assert chosen.tables["table"].tolist() == [[2, 3], [6, 7]]
    assert chosen.alphabet == ("x",) * 4
    assert len(lengths.only({"bird"})) == 0
    assert lengths.words == words
