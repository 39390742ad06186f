"""What was chosen at each step, and the way back from the last word of a hypothesis to its first."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from caption.search.base import Hypotheses
from caption.tensor_tree import TensorTree, combine, map_tensors


class Choice(NamedTuple):
    """How one step extended the hypotheses of B images into K each."""

    parents: Tensor
    """(B, K) int64, the hypothesis of the step before that each one continues."""
    words: Tensor
    """(B, K) int64, the word it adds."""
    log_probs: Tensor
    """(B, K), the log-probability of that word."""


class Endings(NamedTuple):
    """Where the hypotheses of B images end, N each."""

    emitted: Tensor
    """(B, N) int64, the number of steps each took, that of its end word included."""
    slots: Tensor
    """(B, N) int64, its place among the K hypotheses at the last of these steps; any value for no steps."""
    log_probs: Tensor
    """(B, N), the log-probability of all it emitted."""
    scores: Tensor
    """(B, N), what ranks it."""
    finished: Tensor
    """(B, N) bool, whether the last of its words is the end word."""

    def best(self, count: int) -> Endings:
        """The `count` best of each image: finished before unfinished, then by score."""
        order = self.scores.argsort(dim=1, descending=True, stable=True)
        by_finish = self.finished.gather(1, order).long().argsort(dim=1, descending=True, stable=True)
        order = order.gather(1, by_finish)[:, :count]
        return Endings(*(field.gather(1, order) for field in self))


class Entry(NamedTuple):
    """One step of a history."""

    rows: Tensor
    """(B',) int64, which of the B images this step was about."""
    choice: Choice
    trace: TensorTree
    """Tensors (B', K, ...), in the order of the choice's hypotheses."""


class History:
    """Every step as it was taken. Hypotheses share their past, so nothing is reordered until it is read.

    Args:
        images: B, the number of images at the first step.
    """

    def __init__(self, images: int) -> None:
        self.images = images
        self.entries: list[Entry] = []

    def add(self, rows: Tensor, choice: Choice, trace: TensorTree) -> None:
        """Note a step: rows (B',), choice (B', K), trace tensors (B', K, ...)."""
        self.entries.append(Entry(rows, choice, trace))

    def read(self, endings: Endings, end: int) -> Hypotheses:
        """Follow each hypothesis from its ending back to its first word.

        Args:
            endings: (B, N), in the order wanted.
            end: the word to pad with.
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
        if len(log_probs) == longest:  # the longest was cut off, so no step stands at its end
            log_probs.insert(0, torch.zeros_like(endings.log_probs))
        stack = partial(torch.stack, dim=2)
        return Hypotheses(
            words=torch.stack(words[::-1], dim=2) if words else slots.new_empty(*slots.shape, 0),
            lengths=lengths,
            log_probs=endings.log_probs,
            word_log_probs=torch.stack(log_probs[::-1], dim=2),
            scores=endings.scores,
            finished=endings.finished,
            trace=combine(stack, traces[::-1]) if traces else _no_steps(self.entries[0].trace, slots),
        )

    def _positions(self, rows: Tensor) -> Tensor:
        """(B,) where in a step each image stood; 0 for those that had left."""
        positions = rows.new_zeros(self.images)
        positions[rows] = torch.arange(len(rows), device=rows.device)
        return positions


def _pick(trace: TensorTree, at: tuple[Tensor, Tensor], within: Tensor) -> TensorTree:
    """Tensors (B, N, ...) of the hypotheses `at`, zero where not `within` (B, N)."""

    def pick(tensor: Tensor) -> Tensor:
        picked = tensor[at]
        mask = within.view(*within.shape, *[1] * (picked.dim() - 2))
        return picked.where(mask, torch.zeros((), dtype=picked.dtype, device=picked.device))

    return map_tensors(pick, trace)


def _no_steps(trace: TensorTree, slots: Tensor) -> TensorTree:
    """Tensors (B, N, 0, ...), shaped after a step's trace."""
    return map_tensors(lambda tensor: tensor.new_empty(*slots.shape, 0, *tensor.shape[2:]), trace)
