"""Means over measurements of words, with a bootstrap over images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from caption.analysis.per_word import PerWord
from caption.metrics.significance import estimate


def test_words_of_one_image_bring_no_more_certainty_than_one():
    few = np.random.default_rng(2).uniform(size=50)
    alone = estimate(few, np.arange(50))
    repeated = estimate(np.repeat(few, 20), np.repeat(np.arange(50), 20))
    assert repeated == pytest.approx(alone)
    independent = estimate(np.repeat(few, 20), np.arange(1000))
    assert independent.high - independent.low < (alone.high - alone.low) / 3


def test_there_is_one_number_and_one_image_per_word():
    for values, images in (([], []), ([1, 2], [0]), ([[1, 2]], [[0, 0]])):
        with pytest.raises(ValueError, match="one number and one image per word"):
            estimate(values, images)


@dataclass(frozen=True, repr=False)
class Lengths(PerWord):
    letters: np.ndarray
    tables: dict[str, np.ndarray]
    alphabet: tuple[str, ...] = ("x",) * 4

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return {"length": self.letters}


def test_all_that_is_per_word_is_taken_and_the_rest_stays():
    letters, tables = np.array([1, 3, 1, 3]), {"table": np.arange(8).reshape(4, 2)}
    lengths = Lengths(("a", "dog", "a", "cat"), np.array([0, 0, 1, 1]), letters, tables)
    assert len(lengths) == 4
    chosen = lengths.only({"cat", "dog"})
    assert isinstance(chosen, Lengths)
    assert chosen.words == ("dog", "cat")
    assert chosen.images.tolist() == [0, 1]
    assert chosen.letters.tolist() == [3, 3]
    assert chosen.tables["table"].tolist() == [[2, 3], [6, 7]]
    assert chosen.alphabet == ("x",) * 4
    assert len(lengths.only({"bird"})) == 0


def test_words_are_shown_as_a_line_and_a_table():
    shown = Lengths(("dog", "<a>"), np.array([0, 0]), np.array([3.0, np.nan]), {})
    assert repr(shown) == "Lengths(2 words, means length: 3.00)"
    assert str(shown).splitlines() == ["word  length", "dog     3.00", "<a>        –"]
    assert "<td>&lt;a&gt;</td>" in shown._repr_html_()
    many = Lengths(("dog",) * 40, np.arange(40), np.full(40, 3.0), {})
    assert str(many).splitlines()[-2:] == ["dog                  3.00", "all 40  3.00 [3.00, 3.00]"]
    assert many._repr_html_().count("<tr>") == 1 + 30 + 1


def test_all_words_become_a_data_frame():
    pytest.importorskip("pandas")
    frame = Lengths(("dog", "a"), np.array([0, 1]), np.array([3.0, np.nan]), {}).to_frame()
    assert list(frame.columns) == ["word", "image", "length"]
    assert frame["word"].tolist() == ["dog", "a"]
    assert frame["image"].tolist() == [0, 1]
    np.testing.assert_equal(frame["length"].to_numpy(), [3.0, np.nan])
