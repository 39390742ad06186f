"""Captions whose beginning is given: the search goes on from there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from caption.search.base import Step
from caption.tensor_tree import State


def begin_with(step: Step, words: Sequence[int]) -> Step:
    """A step function for one search, in which every caption begins with some words.

    At their steps every other word gets −inf; theirs keep the log-probability that the model gives them, and count.

    Args:
        step: scores the next word.
        words: ids, those of the first steps.
    """
    given = iter(words)

    def constrained(state: State, fed: Tensor) -> tuple[Tensor, State]:
        log_probs, state = step(state, fed)
        word = next(given, None)
        if word is None:
            return log_probs, state
        only = torch.full_like(log_probs, -torch.inf)
        only[..., word] = log_probs[..., word]
        return only, state

    return constrained
