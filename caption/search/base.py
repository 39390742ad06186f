"""What goes into a search and comes out of it: the step function, the hypotheses found, and bounds of options."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from caption.core.errors import UserError
from caption.core.tensor_tree import State, TensorTree

Step = Callable[[State, Tensor], tuple[Tensor, State]]
"""`step(state, words) -> (log_probs, state)`.

`words` (B, K) int64 is the previous word of each hypothesis, `log_probs` (B, K, V) the normalised natural
log-probabilities of the next one. The `trace` of the new state belongs to the word just scored. B shrinks when images
finish, and K may differ between the first step and the next: read both from `words`. Dead hypotheses are fed with the
end word; their rows are computed and ignored, and for some steps so are those of finished images.
"""


class SearchRecord(NamedTuple):
    """All that a beam search kept of B images: K extensions at each of S steps, in the order of their probability."""

    words: Tensor
    """(B, S, K) int64, the word that each adds."""
    parents: Tensor
    """(B, S, K) int64, the place in the step before of the hypothesis that it continues."""
    log_probs: Tensor
    """(B, S, K), the log-probability of that word; −inf where there are fewer than K."""
    steps: Tensor
    """(B,) int64, the steps until the image was done. What stands behind them is not part of its search."""
    places: Tensor
    """(B, N, S) int64, the places of the N hypotheses that were returned, in their order; −1 past their end."""
    trace: TensorTree
    """Tensors (B, S, K, ...): the `State.trace` of the step that emitted each word. Those with one parent share it."""


class Hypotheses(NamedTuple):
    """The captions found for B images, N each: finished ones before unfinished ones, then best score first.

    An image with fewer than N hypotheses is filled up with empty ones: no words, unfinished, log-probability −inf.
    """

    words: Tensor
    """(B, N, T) int64 without the end word, padded with it. T is the length of the longest; it may be 0."""
    lengths: Tensor
    """(B, N) int64, the number of words, the end word not counted."""
    log_probs: Tensor
    """(B, N) natural log-probability of the whole; it includes the end word's if `finished`."""
    word_log_probs: Tensor
    """(B, N, T + 1) the terms of that sum, the end word's at index `lengths`; 0 past the end."""
    scores: Tensor
    """(B, N) the scores by which they are ranked."""
    finished: Tensor
    """(B, N) bool, False for a caption that was cut off before its end word."""
    trace: TensorTree
    """Tensors (B, N, T, ...): the `State.trace` of the step that emitted each word; 0 past the end."""
    likeliest: tuple[Tensor, Tensor] | None = None
    """The likeliest words of the step that emitted each word, most likely first, if the search was asked to keep some:
    (B, N, T, C) natural log-probabilities by the model, and (B, N, T, C) int64 words."""
    record: SearchRecord | None = None
    """What a beam search kept on the way, if it was asked to record that."""


LARGEST = 1000
"""Largest number of hypotheses or words: a model from a stranger must not take all memory or time for a photo."""


def require_count(name: str, count: int) -> None:
    """Raise a `UserError` unless the number of hypotheses or words `name` is a whole number in 1...LARGEST."""
    if not isinstance(count, int):
        raise UserError(f"{name} is {count!r}: it must be a whole number")
    if not 1 <= count <= LARGEST:
        raise UserError(f"{name} is {count}: it must be at least 1 and at most {LARGEST}")


def require_number(name: str, number: float) -> None:
    """Raise a `UserError` if the option `name` is not a number."""
    if not isinstance(number, (int, float)):
        raise UserError(f"{name} is {number!r}: it must be a number")
