"""The loop that all searches share: score, choose, reorder, drop finished images from the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from caption.errors import UserError
from caption.search.base import Hypotheses, Step
from caption.search.history import Choice, Endings, History
from caption.tensor_tree import State, TensorTree, leaves, select_hypotheses, select_images


class Frontier(Protocol):
    """The live hypotheses of a search, and those that are done."""

    def extend(self, rows: Tensor, log_probs: Tensor) -> tuple[Choice, Tensor]:
        """Choose the next words.

        Args:
            rows: (B',) int64, the images that are still in the batch.
            log_probs: (B', K, V), −inf for words that may not follow.

        Returns:
            The choice, and (B',) bool: which images go on. An image that does not go on may be passed again; its result
            no longer changes.
        """

    def keep(self, staying: Tensor) -> None:
        """Keep the images at the indices `staying` (B'',) of B' only."""

    def endings(self) -> Endings:
        """The ends of the hypotheses of all B images, best first."""


@torch.no_grad()
def explore(
    step: Step,
    state: State,
    frontier: Frontier,
    words: Tensor,
    end: int,
    max_length: int,
    forbidden: Sequence[int] = (),
) -> Hypotheses:
    """Extend hypotheses until every image is done or `max_length` steps were taken.

    Images that are done leave the batch with their `shared` tensors. The tensors of the others are copied then, and
    copying an image takes about as long as one step of one of its hypotheses. So images leave together, once as many
    hypotheses have been computed in vain as there are images that go on. Asking which images go on is the only time
    per step that the host waits for the device.

    Args:
        step: scores the next word.
        state: before the first word, `carried` and `trace` tensors (B, K, ...).
        frontier: chooses words and holds the hypotheses.
        words: (B, K) int64, the input of the first step.
        end: the end word, for padding.
        max_length: the largest number of steps.
        forbidden: words never emitted.
    """
    rows = torch.arange(len(words), device=words.device)
    barred = torch.tensor(list(forbidden), dtype=torch.long, device=words.device)
    history = History(len(words))
    in_vain = 0
    for _ in range(max_length):
        log_probs, state = step(state, words)
        choice, goes_on = frontier.extend(rows, _admissible(log_probs, barred))
        carried, trace = select_hypotheses((state.carried, state.trace), choice.parents)
        history.add(rows, choice, trace)
        staying = goes_on.nonzero().squeeze(1)
        if len(staying) == 0:
            break
        state, words = State(state.shared, carried, trace), choice.words
        in_vain += (len(rows) - len(staying)) * words.shape[1]
        if in_vain >= len(staying):
            in_vain = 0
            state, words, rows = select_images((state, words, rows), staying)
            frontier.keep(staying)
    return history.read(frontier.endings(), end)


def device_of(tree: TensorTree) -> torch.device:
    """The device of the first tensor in a tree; the CPU for a tree without tensors."""
    return next((tensor.device for tensor in leaves(tree)), torch.device("cpu"))


def require_length(max_length: int) -> None:
    """Raise a `UserError` if `max_length` is below 1."""
    if max_length < 1:
        raise UserError(f"max_length is {max_length}: a caption needs room for at least 1 word")


def _admissible(log_probs: Tensor, barred: Tensor) -> Tensor:
    """Log-probabilities with −inf for NaN and barred words, in at least single precision.

    Sums of half-precision log-probabilities would lose the ranking.
    """
    log_probs = log_probs.to(torch.promote_types(log_probs.dtype, torch.float32))
    log_probs = log_probs.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    return log_probs.index_fill_(2, barred, -math.inf)  # in place: nan_to_num has just made a copy
