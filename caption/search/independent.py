"""Independent hypotheses, for greedy search and sampling: each takes its own next word until it ends."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from caption.core.tensor_tree import State
from caption.search.loop import Endings, Extension


class IndependentHypotheses:
    """K independent hypotheses per image; the frontier of a `Search`.

    Args:
        images: B.
        width: K.
        end: the end word.
        choose: (log_probs (B', K, V), rows (B',), time) -> (B', K) int64, the next word of each hypothesis; time is 0,
            1, ... Words for hypotheses that have ended, or that no word may follow, are ignored.
        device: the device of the log-probabilities.
    """

    def __init__(
        self,
        images: int,
        width: int,
        end: int,
        choose: Callable[[Tensor, Tensor, int], Tensor],
        device: torch.device,
    ) -> None:
        self.beginnings = width
        self.end = end
        self.choose = choose
        self.time = 0
        # All of these have a row for each of the B images of the whole batch; a step selects its rows.
        self.running = torch.ones(images, width, dtype=torch.bool, device=device)
        self.finished = torch.zeros_like(self.running)
        self.emitted = torch.zeros(images, width, dtype=torch.long, device=device)
        self.log_probs = torch.zeros(images, width, device=device)

    def extend(self, rows: Tensor, log_probs: Tensor, state: State) -> tuple[Extension, Tensor]:
        """Choose the next words. See `Frontier`."""
        words = self.choose(log_probs, rows, self.time)
        return self.take(rows, words, log_probs.gather(2, words[..., None]).squeeze(2))

    def take(self, rows: Tensor, words: Tensor, terms: Tensor) -> tuple[Extension, Tensor]:
        """Give every running hypothesis its next word (B', K), of log-probability (B', K)."""
        self.time += 1
        running = self.running[rows] & (terms > -math.inf)
        words = words.where(running, self.end)
        terms = terms.where(running, 0.0)
        ended = running & (words == self.end)
        self.log_probs = self.log_probs.to(terms.dtype).index_add(0, rows, terms)
        self.emitted[rows] += running.long()
        self.finished[rows] |= ended
        self.running[rows] = running & ~ended
        parents = torch.arange(words.shape[1], device=words.device).repeat(len(words), 1)
        return Extension(parents, words, terms), (running & ~ended).any(dim=1)

    def keep(self, staying: Tensor) -> None:
        """Do nothing: the state has the rows of the whole batch."""

    def endings(self) -> Endings:
        """All hypotheses, ranked by their log-probabilities."""
        images, width = self.emitted.shape
        slots = torch.arange(width, device=self.emitted.device).repeat(images, 1)
        return Endings(self.emitted, slots, self.log_probs, self.log_probs, self.finished).best(width)
