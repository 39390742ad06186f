"""The history of a search: the choice of every step, and hypotheses read back from their last word to their first."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from caption.search.base import Hypotheses
from caption.tensor_tree import TensorTree, combine, map_tensors


class Choice(NamedTuple):
    """One step's extension of the hypotheses of B images to K each."""

    parents: Tensor
    """(B, K) int64, the hypothesis of the previous step that each one continues."""
    words: Tensor
    """(B, K) int64, the word it adds."""
    log_probs: Tensor
    """(B, K), the log-probability of that word."""


class Endings(NamedTuple):
    """The ends of the hypotheses of B images, N each."""

    emitted: Tensor
    """(B, N) int64, the number of steps of each, including that of its end word."""
    slots: Tensor
    """(B, N) int64, its place among the K hypotheses of its last step; any value if it has no steps."""
    log_probs: Tensor
    """(B, N), the log-probability of all it emitted."""
    scores: Tensor
    """(B, N), the score that ranks it."""
    finished: Tensor
    """(B, N) bool, whether its last word is the end word."""

    def best(self, count: int) -> Endings:
        """The `count` best of each image: finished before unfinished, then by score."""
        order = self.scores.argsort(dim=1, descending=True, stable=True)
        by_finish = self.finished.gather(1, order).long().argsort(dim=1, descending=True, stable=True)
        order = order.gather(1, by_finish)[:, :count]
        return Endings(*(field.gather(1, order) for field in self))


class Entry(NamedTuple):
    """One step of a history."""

    rows: Tensor
    """(B',) int64, the images of the batch in this step."""
    choice: Choice
    trace: TensorTree
    """Tensors (B', K, ...), in the order of the choice's hypotheses."""


class History:
    """The steps of a search, in order. Hypotheses share their past, so nothing is reordered until it is read.

    Args:
        images: B, the number of images at the first step.
    """

    def __init__(self, images: int) -> None:
        self.images = images
        self.entries: list[Entry] = []

    def add(self, rows: Tensor, choice: Choice, trace: TensorTree) -> None:
        """Append a step: rows (B',), choice (B', K), trace tensors (B', K, ...)."""
        self.entries.append(Entry(rows, choice, trace))

    def read(self, endings: Endings, end: int) -> Hypotheses:
        """Follow each hypothesis from its ending back to its first word.

        Args:
            endings: (B, N), in the order of the result.
            end: the word for padding.
        """
        lengths = endings.emitted - endings.finished.long()
        longest = int(lengths.max()) if lengths.numel() else 0
        words, log_probs, traces = [], [], []
        slots = endings.slots
        for time in reversed(range(len(self.entries))):
            rows, choice, trace = self.entries[time]
            taken = time < endings.emitted
            at = (self._positions(rows)[:, None], slots)
            if time <= longest:
                log_probs.append(choice.log_probs[at].where(taken, 0.0))
            if time < longest:
                within = time < lengths
                words.append(choice.words[at].where(within, end))
                traces.append(_pick(trace, at, within))
            slots = choice.parents[at].where(taken, slots)
        if len(log_probs) == longest:  # the longest was cut off, so it has no step of an end word
            log_probs.insert(0, torch.zeros_like(endings.log_probs))
        stack = partial(torch.stack, dim=2)
        return Hypotheses(
            words=stack(words[::-1]) if words else slots.new_empty(*slots.shape, 0),
            lengths=lengths,
            log_probs=endings.log_probs,
            word_log_probs=stack(log_probs[::-1]),
            scores=endings.scores,
            finished=endings.finished,
            trace=combine(stack, traces[::-1]) if traces else _no_steps(self.entries[0].trace, slots),
        )

    def _positions(self, rows: Tensor) -> Tensor:
        """(B,) the position of each image in a step; 0 for images that had left the batch."""
        positions = rows.new_zeros(self.images)
        positions[rows] = torch.arange(len(rows), device=rows.device)
        return positions


def _pick(trace: TensorTree, at: tuple[Tensor, Tensor], within: Tensor) -> TensorTree:
    """The trace (B, N, ...) of the hypotheses `at`; zero where `within` (B, N) is false."""

    def pick(tensor: Tensor) -> Tensor:
        picked = tensor[at]
        mask = within.view(*within.shape, *[1] * (picked.dim() - 2))
        return picked.where(mask, torch.zeros((), dtype=picked.dtype, device=picked.device))

    return map_tensors(pick, trace)


def _no_steps(trace: TensorTree, slots: Tensor) -> TensorTree:
    """Tensors (B, N, 0, ...), shaped after a step's trace."""
    return map_tensors(lambda tensor: tensor.new_empty(*slots.shape, 0, *tensor.shape[2:]), trace)
