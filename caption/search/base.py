"""What every search takes and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from caption.tensor_tree import State, TensorTree

Step = Callable[[State, Tensor], tuple[Tensor, State]]
"""`step(state, words) -> (log_probs, state)`.

`words` (B, K) int64 is the previous word of each hypothesis, `log_probs` (B, K, V) the normalised natural
log-probabilities of the next one. In the new state `trace` speaks of the word just scored. B shrinks when
images finish, and K may differ between the first step and the next: read both from `words`. The rows of
dead hypotheses, fed with the end word, are computed too and ignored; for some steps also those of finished images.
"""


class Hypotheses(NamedTuple):
    """The captions found for B images, N each: finished ones before unfinished ones, then best score first.

    Where an image has fewer than N hypotheses, the rest are empty: no words, unfinished, log-probability
    −inf.
    """

    words: Tensor
    """(B, N, T) int64 without the end word, padded with it. T is the length of the longest; it may be 0."""
    lengths: Tensor
    """(B, N) int64, the number of words, the end word not counted."""
    log_probs: Tensor
    """(B, N) natural log-probability of the whole, the end word's included where `finished`."""
    word_log_probs: Tensor
    """(B, N, T + 1) the terms of that sum, the end word's at index `lengths`; 0 past the end."""
    scores: Tensor
    """(B, N) what the ranking compared."""
    finished: Tensor
    """(B, N) bool, False for a caption that was cut off before its end word."""
    trace: TensorTree
    """Tensors (B, N, T, ...): what the step that emitted each word left in `State.trace`; 0 past the end."""


class Search(ABC):
    """A way to turn step scores into captions."""

    @abstractmethod
    def __call__(
        self, step: Step, state: State, images: int, start: int, end: int, forbidden: Sequence[int] = ()
    ) -> Hypotheses:
        """Write captions for a batch of images, without gradients.

        Args:
            step: scores the next word, see `Step`.
            state: the state before the first word, one hypothesis per image: `shared` tensors (B, ...),
                `carried` and `trace` tensors (B, 1, ...).
            images: B.
            start: the word fed to the first step.
            end: the word that finishes a hypothesis.
            forbidden: words never emitted (padding, start, unknown). Their probability is not given to the
                others: the log-probabilities reported stay the model's own.

        Returns:
            At most `max_length` words per hypothesis. A hypothesis that no word may follow, every
            log-probability being −inf or NaN, stops where it stands, unfinished.
        """
