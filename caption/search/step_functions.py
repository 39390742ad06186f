"""Wrappers of the step function, for any search: a given beginning, steps that were computed before, and the likeliest
words of each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from caption.core.tensor_tree import State, TensorTree, select_hypotheses
from caption.kernels.top_k import top_k
from caption.search.base import Step


def with_prefix(step: Step, words: Sequence[int]) -> Step:
    """A step function for one search in which every caption begins with the given words.

    In the first steps all other words get −inf. The given words keep the log-probability that the model gives them, and
    it counts in the caption's.

    Args:
        step: scores the next word.
        words: ids of the first words.
    """
    prefix = iter(words)

    def forced(state: State, previous: Tensor) -> tuple[Tensor, State]:
        log_probs, state = step(state, previous)
        word = next(prefix, None)
        return log_probs if word is None else _only(word, log_probs), state

    return forced


def _only(word: int, log_probs: Tensor) -> Tensor:
    """−inf for all other words."""
    only = torch.full_like(log_probs, -torch.inf)
    only[..., word] = log_probs[..., word]
    return only


class ComputedStep(NamedTuple):
    """A step of one caption of one image."""

    word: int
    """The word that was chosen."""
    log_probs: Tensor
    """(1, 1, V) of the words that could follow."""
    state: State
    """After the step, for one hypothesis."""


def with_computed_steps(step: Step, computed: Sequence[ComputedStep]) -> Step:
    """A step function for one search of one image, whose caption begins with steps that are not computed again.

    It gives what `with_prefix` gives for their words.

    Args:
        step: scores the words after them; its traces are like theirs.
        computed: the first steps.
    """
    remaining = iter(computed)

    def replayed(state: State, previous: Tensor) -> tuple[Tensor, State]:
        known = next(remaining, None)
        if known is None:
            return step(state, previous)
        # Every hypothesis continues the one there was; search drops all but the first, which are impossible.
        only, carried, trace = select_hypotheses(
            (_only(known.word, known.log_probs), known.state.carried, known.state.trace),
            torch.zeros_like(previous),
        )
        return only, State(known.state.shared, carried, trace)

    return replayed


class LikeliestWords(NamedTuple):
    """A trace with the likeliest words of its step, most likely first."""

    words: Tensor
    """(..., N) int64."""
    log_probs: Tensor
    """(..., N) natural log-probabilities."""
    trace: TensorTree
    """The trace of the step itself."""


def with_likeliest_words(step: Step, count: int) -> Step:
    """A step function whose trace is a `LikeliestWords`.

    Args:
        step: scores the next word.
        count: N, the words to keep; fewer if the vocabulary has fewer.
    """

    def traced(state: State, previous: Tensor) -> tuple[Tensor, State]:
        if isinstance(state.trace, LikeliestWords):
            state = state._replace(trace=state.trace.trace)
        log_probs, state = step(state, previous)
        best, words = top_k(log_probs.nan_to_num(nan=-math.inf), count)
        return log_probs, state._replace(trace=LikeliestWords(words, best, state.trace))

    return traced
