"""Inputs and outputs of a search: the step function, the hypotheses, and checks of options."""

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
finish, and K may differ between the first step and the second: read both from `words`. Dead hypotheses are fed the end
word; their rows are computed and ignored, as are, for some steps, those of finished images.
"""


class SearchRecord(NamedTuple):
    """The extensions that a beam search kept for B images: K at each of S steps, most probable first."""

    words: Tensor
    """(B, S, K) int64, the word that each extension adds."""
    parents: Tensor
    """(B, S, K) int64, the index in the previous step of the hypothesis that it continues."""
    log_probs: Tensor
    """(B, S, K), the log-probability of that word; −inf if there are fewer than K extensions."""
    steps: Tensor
    """(B,) int64, the number of steps until the image was done. Entries of later steps are not part of its search."""
    places: Tensor
    """(B, N, S) int64, the indices of the N returned hypotheses among the extensions of each step; −1 past their
    end."""
    trace: TensorTree
    """Tensors (B, S, K, ...): the `State.trace` of the step that emitted each word; extensions of the same parent share
    it."""


class Hypotheses(NamedTuple):
    """The captions found for B images, N each: finished ones before unfinished ones, then best score first.

    If an image has fewer than N hypotheses, the rest are empty: no words, unfinished, log-probability −inf.
    """

    words: Tensor
    """(B, N, T) int64 without the end word, padded with it. T is the length of the longest; it may be 0."""
    lengths: Tensor
    """(B, N) int64, the number of words, the end word not counted."""
    log_probs: Tensor
    """(B, N) natural log-probability of the caption; it includes the end word's if `finished`."""
    word_log_probs: Tensor
    """(B, N, T + 1) the terms of that sum, the end word's at index `lengths`; 0 past the end."""
    scores: Tensor
    """(B, N) the scores by which they are ranked: of log-probabilities less the penalties on repeated words, if any."""
    finished: Tensor
    """(B, N) bool, False for a caption that was cut off before its end word."""
    trace: TensorTree
    """Tensors (B, N, T, ...): the `State.trace` of the step that emitted each word; 0 past the end."""
    likeliest: tuple[Tensor, Tensor] | None = None
    """The C likeliest words of the step that emitted each word, most likely first, if requested: (B, N, T, C) natural
    log-probabilities of the model, and (B, N, T, C) int64 words."""
    record: SearchRecord | None = None
    """All extensions of a beam search, if requested."""


LARGEST = 1000
"""Largest number of hypotheses or words, so that an untrusted model cannot use all memory for a photo."""
MOST_STEPS = 50_000
"""Largest number of hypotheses times words, for the same reason: about ten seconds for a photo on two CPU cores."""


def require_count(name: str, count: int) -> None:
    """Raise a `UserError` unless the number of hypotheses or words `name` is a whole number from 1 to LARGEST."""
    if type(count) is not int:
        raise UserError(f"{name} is {count!r}: it must be a whole number")
    if not 1 <= count <= LARGEST:
        raise UserError(f"{name} is {count}: it must be at least 1 and at most {LARGEST}")


def require_time(name: str, hypotheses: int, max_length: int) -> None:
    """Raise a `UserError` if a photo would take minutes: the option `name` is the number of hypotheses."""
    if hypotheses * max_length > MOST_STEPS:
        raise UserError(
            f"{name} is {hypotheses} and max_length {max_length}: each photo would take minutes; their product may be "
            f"at most {MOST_STEPS:,}"
        )


def require_number(name: str, number: float) -> None:
    """Raise a `UserError` if the option `name` is not a number."""
    if not isinstance(number, (int, float)):
        raise UserError(f"{name} is {number!r}: it must be a number")


def require_penalty(penalty: float) -> None:
    """Raise a `UserError` unless `repeat_penalty` is a number from 0 to LARGEST."""
    require_number("repeat_penalty", penalty)
    if not 0 <= penalty <= LARGEST:
        raise UserError(
            f"repeat_penalty is {penalty}: it must be from 0 (no penalty) to {LARGEST} nats, which forbid "
            "repeated words"
        )
