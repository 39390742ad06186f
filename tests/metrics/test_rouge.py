"""ROUGE-L on captions small enough to count by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caption.metrics import evaluate
from caption.metrics.rouge import common_subsequence

BETA2 = 1.2**2


def rouge(candidate, *references):
    return evaluate({1: candidate}, {1: list(references)}, "ptb", ["ROUGE-L"])["ROUGE-L"]


def f_measure(precision, recall):
    return (1 + BETA2) * precision * recall / (recall + BETA2 * precision)


def test_precision_and_recall():
    assert rouge("a b c d", "a c x d y") == pytest.approx(f_measure(3 / 4, 3 / 5))
    # Of different references.
    assert rouge("a b c d", "a b c x x x", "d") == pytest.approx(f_measure(3 / 4, 1))
    assert [rouge(*pair) for pair in (("a b", "c d"), ("", "a b"), ("a b", "."), ("", "."))] == [0] * 4


def by_table(left, right):
    """The textbook's table, the reference for the fast implementation."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for row, ours in enumerate(left, 1):
        for column, theirs in enumerate(right, 1):
            if ours == theirs:
                table[row][column] = table[row - 1][column - 1] + 1
            else:
                table[row][column] = max(table[row - 1][column], table[row][column - 1])
    return table[-1][-1]


sentences = st.lists(st.sampled_from("abcde"), max_size=80)


@settings(deadline=None)
@given(sentences, sentences)
def test_bits_count_like_the_table(left, right):
    assert common_subsequence(left, right) == by_table(left, right)
