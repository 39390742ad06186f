"""Captions that begin with given words: a wrapper of the step function, for any search."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from caption.search.base import Step
from caption.tensor_tree import State


def begin_with(step: Step, words: Sequence[int]) -> Step:
    """A step function for one search in which every caption begins with the given words.

    In the first steps all other words get −inf. The given words keep the log-probability that the model gives them, and
    it counts in the caption's.

    Args:
        step: scores the next word.
        words: ids of the first words.
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
