"""Greedy search: the most probable next word at every step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from caption.search.base import require_count, require_penalty
from caption.search.independent import IndependentHypotheses
from caption.search.loop import Frontier, Search
from caption.search.top_k import top_k


@dataclass(frozen=True, repr=False)
class Greedy(Search):
    """y[t] = argmax p(y | y[1..t-1], image); one hypothesis per image, the same as with a beam of size 1.

    Args:
        max_length: largest number of words, including the end word, so a finished caption has one fewer.
        repeat_penalty: see `Search`.

    Raises:
        UserError: a number is out of its range.
    """

    max_length: int = 30
    repeat_penalty: float = 0.0

    def __post_init__(self) -> None:
        require_count("max_length", self.max_length)
        require_penalty(self.repeat_penalty)

    def frontier(self, images: int, end: int, device: torch.device) -> Frontier:
        return IndependentHypotheses(images, 1, end, _most_probable, device)


def _most_probable(log_probs: Tensor, rows: Tensor, time: int) -> Tensor:
    """(B, K, V) -> (B, K) words."""
    return top_k(log_probs, 1)[1].squeeze(2)
