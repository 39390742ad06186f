"""The loop all searches share: score, choose, reorder, let finished images go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from caption.errors import UserError
from caption.search.base import Hypotheses, Step
from caption.search.history import Choice, Endings, History
from caption.tensor_tree import State, TensorTree, map_tensors, select_hypotheses, select_images


class Frontier(Protocol):
    """The hypotheses still being written, and the memory of those that are done."""

    def extend(self, rows: Tensor, log_probs: Tensor) -> tuple[Choice, Tensor]:
        """Choose the next words.

        Args:
            rows: (B',) int64, which images of the batch are still here.
            log_probs: (B', K, V), −inf for what may not follow.

        Returns:
            The choice, and (B',) bool: which images go on. One that does not may be asked for again; what was found
            for it is final.
        """

    def keep(self, staying: Tensor) -> None:
        """Forget the images that are not at the indices `staying` (B'',) of B'."""

    def endings(self) -> Endings:
        """Where the hypotheses of all B images end, best first."""


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

    Images that are done leave the batch, their `shared` tensors with them. The others' tensors are copied then, so they
    leave together, once the hypotheses computed in vain since the last time are as many as the images that go on:
    copying an image takes about as long as a step of a hypothesis of it. Asking which images go on is the only time per
    step that the host waits for the device.

    Args:
        step: scores the next word.
        state: before the first word, `carried` and `trace` tensors (B, K, ...).
        frontier: chooses and remembers.
        words: (B, K) int64, what the first step is fed.
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


def device_of(record: TensorTree) -> torch.device:
    """The device of the first tensor in a record; the CPU for a record without any."""
    devices: list[torch.device] = []

    def note(tensor: Tensor) -> Tensor:
        devices.append(tensor.device)
        return tensor

    map_tensors(note, record)
    return devices[0] if devices else torch.device("cpu")


def require_length(max_length: int) -> None:
    """Raise a `UserError` unless there is room for one word."""
    if max_length < 1:
        raise UserError(f"max_length is {max_length}: a caption needs room for at least 1 word")


def _admissible(log_probs: Tensor, barred: Tensor) -> Tensor:
    """In at least single precision, since sums of half-precision log-probabilities lose the ranking."""
    log_probs = log_probs.to(torch.promote_types(log_probs.dtype, torch.float32))
    log_probs = log_probs.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    return log_probs.index_fill_(2, barred, -math.inf)  # in place: nan_to_num has just made a copy
