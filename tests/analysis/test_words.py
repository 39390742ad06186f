"""Some words of many, whatever was measured of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caption.analysis.words import PerWord


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
