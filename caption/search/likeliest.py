"""The likeliest words at each step of a caption, kept in the trace: a wrapper of the step function, for any search."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from caption.search.base import Step
from caption.search.blocks import largest
from caption.tensor_tree import State, TensorTree


class Likeliest(NamedTuple):
    """A trace with the likeliest words of its step, most likely first."""

    words: Tensor
    """(..., N) int64."""
    log_probs: Tensor
    """(..., N) natural log-probabilities."""
    trace: TensorTree
    """The trace of the step itself."""


def with_likeliest(step: Step, count: int) -> Step:
    """A step function whose trace is a `Likeliest`.

    Args:
        step: scores the next word.
        count: N, the words to keep; fewer if the vocabulary has fewer.
    """

    def noted(state: State, fed: Tensor) -> tuple[Tensor, State]:
        if isinstance(state.trace, Likeliest):
            state = state._replace(trace=state.trace.trace)
        log_probs, state = step(state, fed)
        best, words = largest(log_probs.nan_to_num(nan=-math.inf), count)
        return log_probs, state._replace(trace=Likeliest(words, best, state.trace))

    return noted
