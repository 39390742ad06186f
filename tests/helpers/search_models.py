"""Toy models whose next word depends on all previous words, and checks that every search over them must pass."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from caption.core.tensor_tree import State
from caption.search import Hypotheses

START, END = 0, 1
MODULUS = 997
REGIONS = 3


class Trace(NamedTuple):
    """Records the image and the words of a step."""

    past: Tensor
    weights: tuple[Tensor, None]


class HashModel:
    """p(next | image, words so far): a row of a random table, selected by a hash of the image and all words.

    The state is an integer, so stepping in any batch gives exactly the same numbers as `next_log_probs`.
    """

    def __init__(self, words: int, seed: int, holes: float = 0.0, dtype: torch.dtype = torch.float64) -> None:
        generator = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(MODULUS, words, generator=generator, dtype=torch.float64)
        table = logits.log_softmax(dim=1)
        table[torch.rand(table.shape, generator=generator) < holes] = -math.inf
        self.words = words
        self.table = table.to(dtype)
        self.rows: list[list[float]] = self.table.double().tolist()
        self.weights = torch.rand(MODULUS, REGIONS, generator=generator, dtype=torch.float64)
        self.salts = random.Random(seed).sample(range(MODULUS), 64)
        self.batches: list[int] = []
        self.barred: list[int] = []

    def start(self, images: list[int]) -> State:
        salts = torch.tensor([self.salts[image] for image in images], dtype=torch.long)
        return State(shared=[salts], carried=(torch.zeros(len(images), 1, dtype=torch.long),), trace=None)

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        (salts,), (past,) = state.shared, state.carried
        assert past.shape == words.shape, "carried must follow the hypotheses"
        assert salts.shape == words.shape[:1], "shared must stay one per image"
        assert not set(words.flatten().tolist()) & {*self.barred} - {START, END}, (
            "not even the dead are fed these"
        )
        self.batches.append(len(words))
        past = (past * 31 + words + 7) % MODULUS
        row = (past + salts[:, None]) % MODULUS
        return self.table[row], State([salts], (past,), Trace(row, (self.weights[row], None)))

    def row(self, image: int, prefix: list[int]) -> int:
        past = 0
        for word in [START, *prefix]:
            past = (past * 31 + word + 7) % MODULUS
        return (past + self.salts[image]) % MODULUS

    def next_log_probs(self, image: int, prefix: list[int]) -> list[float]:
        return self.rows[self.row(image, prefix)]


def penalised(
    following: Callable[[list[int]], list[float]], content: Collection[int], penalty: float
) -> Callable[[list[int]], list[float]]:
    """Log-probabilities of the next word, less the penalty for each repeat: by the definition, word by word."""

    def lowered(words: list[int]) -> list[float]:
        return [
            log_prob - penalty if (word in content and word in words) or words[-1:] == [word] else log_prob
            for word, log_prob in enumerate(following(words))
        ]

    return lowered if penalty else following


def captions(hypotheses: Hypotheses, image: int) -> list[list[int]]:
    """The words of each hypothesis of an image, without padding."""
    return [
        row[:length]
        for row, length in zip(
            hypotheses.words[image].tolist(), hypotheses.lengths[image].tolist(), strict=True
        )
    ]


def check(
    hypotheses: Hypotheses, model: HashModel, images: list[int], max_length: int, forbidden: list[int]
) -> None:
    """Check shapes, padding and order, and that each hypothesis replayed alone gives its numbers and its trace."""
    count, candidates, longest = hypotheses.words.shape
    assert count == len(images)
    assert longest == int(hypotheses.lengths.max())
    assert hypotheses.word_log_probs.shape == (count, candidates, longest + 1)
    assert hypotheses.trace.past.shape == (count, candidates, longest)
    assert hypotheses.trace.weights[0].shape == (count, candidates, longest, REGIONS)
    assert hypotheses.trace.weights[1] is None
    for position, image in enumerate(images):
        keys = list(
            zip(hypotheses.finished[position].tolist(), hypotheses.scores[position].tolist(), strict=True)
        )
        assert keys == sorted(keys, reverse=True)
        for place, words in enumerate(captions(hypotheses, position)):
            _check_one(hypotheses, (position, place), model, image, words)
            assert not set(words) & {END, *forbidden}
            assert len(words) + bool(hypotheses.finished[position, place]) <= max_length


def _check_one(
    hypotheses: Hypotheses, at: tuple[int, int], model: HashModel, image: int, words: list[int]
) -> None:
    emitted = [*words, END] if hypotheses.finished[at] else words
    rows = [model.row(image, emitted[:time]) for time in range(len(emitted))]
    terms = [model.rows[row][word] for row, word in zip(rows, emitted, strict=True)]
    longest = hypotheses.words.shape[2]
    assert hypotheses.words[at].tolist() == words + [END] * (longest - len(words))
    assert hypotheses.word_log_probs[at].tolist() == terms + [0.0] * (longest + 1 - len(terms))
    if words or hypotheses.finished[at] or hypotheses.log_probs[at] > -math.inf:
        assert float(hypotheses.log_probs[at]) == pytest.approx(math.fsum(terms), rel=1e-12, abs=1e-12)
    assert hypotheses.trace.past[at].tolist() == rows[: len(words)] + [0] * (longest - len(words))
    weights = hypotheses.trace.weights[0][at]
    assert torch.equal(weights[: len(words)], model.weights[rows[: len(words)]])
    assert not weights[len(words) :].any()
