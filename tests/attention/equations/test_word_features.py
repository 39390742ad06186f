"""Features of the words so far against their equations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers.loops import QUERIES, WORD, Vector, close, linear, parameters, random_queries, randomise, sigmoid

from caption.attention import (
    PhraseConvolutions,
    Query,
    QuerySizes,
    ScaledDotScore,
    SymmetricCoAttention,
    WordFeatures,
    WordLSTM,
    WordProjection,
)
from caption.errors import UserError

STEPS, SIZE = 5, 4
Weights = dict[str, np.ndarray]


def projection(p: Weights, words: list[Vector]) -> Vector:
    """W y_t + b."""
    return linear(p, "project", words[-1])


def lstm(p: Weights, words: list[Vector]) -> Vector:
    """h of an LSTM that has read the words, from zeros."""
    hidden, cell = np.zeros(SIZE), np.zeros(SIZE)
    for word in words:
        gates = p["cell.weight_ih"] @ word + p["cell.bias_ih"] + p["cell.weight_hh"] @ hidden
        i, f, g, o = np.split(gates + p["cell.bias_hh"], 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
    return hidden


def phrases(longest: int) -> Callable[[Weights, list[Vector]], Vector]:
    """The maximum over s of tanh(W_s [y_{t-s+1}; …; y_t]), with zeros before the first word."""

    def equation(p: Weights, words: list[Vector]) -> Vector:
        padded = [np.zeros(WORD)] * (longest - 1) + words
        features = [
            np.tanh(linear(p, f"windows.{s - 1}", np.concatenate(padded[len(padded) - s :])))
            for s in range(1, longest + 1)
        ]
        return np.array([max(feature[n] for feature in features) for n in range(SIZE)])

    return equation


FEATURES: dict[str, tuple[Callable[[], WordFeatures], Callable[[Weights, list[Vector]], Vector]]] = {
    "projection": (lambda: WordProjection(SIZE), projection),
    "LSTM": (lambda: WordLSTM(SIZE), lstm),
    "phrases of one to three words": (lambda: PhraseConvolutions(SIZE), phrases(3)),
    "phrases of one word": (lambda: PhraseConvolutions(SIZE, 1), phrases(1)),
}


def features_of(words: WordFeatures, queries: list[Query]) -> torch.Tensor:
    state = words.start(queries[0].hidden, QUERIES)
    assert state.features.shape == (len(queries[0].hidden), QUERIES, 0, SIZE)
    for query in queries:
        state = words(query, state)
    return state.features


@pytest.mark.parametrize("name", FEATURES)
def test_features_are_those_of_the_equations(name: str) -> None:
    make, equation = FEATURES[name]
    words = make()
    words.build(WORD)
    randomise(words.double())
    queries = random_queries(STEPS)
    features = features_of(words, queries)
    for b, k in np.ndindex(2, QUERIES):
        read = [query.word[b, k].numpy() for query in queries]
        close(features[b, k], [equation(parameters(words), read[: t + 1]) for t in range(STEPS)])


@pytest.mark.parametrize("name", FEATURES)
def test_only_word_vectors_do_not_know_their_order(name: str) -> None:
    words = FEATURES[name][0]()
    words.build(WORD)
    randomise(words.double())
    first, second, third = random_queries(3)
    straight = features_of(words, [first, second, third])[:, :, 2]
    exchanged = features_of(words, [second, first, third])[:, :, 2]
    knows = name not in ("projection", "phrases of one word")
    assert torch.equal(straight, exchanged) != knows


def test_words_are_needed() -> None:
    with pytest.raises(UserError, match=r"WordLSTM reads the words so far, and this decoder hands .* none"):
        SymmetricCoAttention(WordLSTM(SIZE), ScaledDotScore(6)).build((5,), QuerySizes(7))
    words = WordProjection(SIZE)
    words.build(WORD)
    query = Query(torch.zeros(1, 1, 5))
    with pytest.raises(UserError, match="WordProjection reads the words so far, and the query has no word"):
        words(query, words.start(query.hidden, 1))
