"""The search of transformers' `generate`, so that a foreign model writes the same captions as there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from caption.search.beam import Beam, BeamSearch
from caption.search.loop import Endings, Extension, Frontier, Search


@dataclass(frozen=True, repr=False)
class GenerateBeam(BeamSearch):
    """Beam search whose beam stays full: a hypothesis that ends is replaced by the next best unfinished one.

    Of the 2 K most probable extensions, those among the first K that end go to the pool, and the K best that do not end
    are the next beam. The search stops when the pool has K hypotheses of which no live one can overtake the worst.
    Hypotheses that reach `max_length` compete with finished ones.

    Args:
        early_stopping: as in transformers' `GenerationConfig`. False judges a live hypothesis by its length so far, and
            may miss longer ones; "never" judges it by `max_length`; with True, a full pool is enough.
    """

    early_stopping: bool | Literal["never"] = False

    def frontier(self, images: int, end: int, device: torch.device) -> Frontier:
        if self.beam_size == 1:  # greedy: a full beam would continue after the end
            return super().frontier(images, end, device)
        return _FullBeam(self, images, end, device)


class _FullBeam(Beam):
    """The frontier of `GenerateBeam`: K live hypotheses first, then those that have just ended."""

    def __init__(self, search: GenerateBeam, images: int, end: int, device: torch.device) -> None:
        super().__init__(replace(search, candidates=search.beam_size), images, end, device)
        self.candidates, self.early_stopping = search.candidates, search.early_stopping
        self.width = 2 * search.beam_size
        self.done = torch.zeros(images, dtype=torch.bool, device=device)

    def extend(self, rows: Tensor, log_probs: Tensor) -> tuple[Extension, Tensor]:
        size = self.search.beam_size
        best = self._best_extensions(log_probs)
        totals, words = best[0], best[2]
        self.emitted += 1
        first = torch.arange(2 * size, device=words.device) < size
        ended = (totals > -torch.inf) & (words == self.end)
        pooled = ended & first & ~self.done[rows, None]
        most_pooled = int(pooled.sum(1).max())
        order = torch.cat((_first(~ended, size), _first(pooled, most_pooled)), 1)
        totals, parents, words, terms = (values.gather(1, order) for values in best)
        pooled = torch.cat(
            (torch.zeros_like(order[:, :size], dtype=torch.bool), pooled.gather(1, order[:, size:])), 1
        )
        living = (totals > -torch.inf) & (words != self.end)
        living[:, size:] = False
        self._add_to_pool(rows, totals.where(pooled, -torch.inf))
        competing = living[:, :size] & first[order[:, :size]]
        self.log_probs = totals[:, :size].where(competing, -torch.inf)
        self._update_unfinished(rows, living.any(1))
        self.log_probs = totals.where(living, -torch.inf)
        exists = living | pooled
        return Extension(
            parents, words.where(exists, self.end), terms.where(exists, -torch.inf)
        ), self._can_improve(rows)

    def endings(self) -> Endings:
        if self.emitted < self.search.max_length:
            return self.finished.best(self.candidates)
        pairs = zip(self.finished, self.unfinished, strict=True)
        endings = Endings(*(torch.cat(pair, dim=1) for pair in pairs))
        finished = endings.finished & (endings.scores > -torch.inf)
        return endings._replace(finished=finished).best(self.candidates, torch.zeros_like(endings.slots))

    def _can_improve(self, rows: Tensor) -> Tensor:
        worst = self.finished.scores[rows].amin(dim=1)
        never = self.early_stopping == "never" and self.search.length_normalization > 0
        reach = self._score(self.log_probs.amax(dim=1), self.search.max_length if never else self.emitted)
        can_improve = reach > worst
        if self.early_stopping is True:
            can_improve &= worst == -torch.inf
        self.done[rows] |= ~can_improve
        return ~self.done[rows]


def _first(chosen: Tensor, count: int) -> Tensor:
    """(B, N) bool -> (B, count) places of the chosen entries, in order, then of the others."""
    return (~chosen).long().argsort(dim=1, stable=True)[:, :count]


def configured_search(generation: Any, prompt: int) -> Search:
    """The search that a `GenerationConfig` of transformers describes, without sampling.

    Args:
        generation: the configuration.
        prompt: number of pieces before the first word, which count in its `max_length`.
    """
    to_length = LONGEST if generation.max_length is None else generation.max_length - prompt
    longest = max(1, generation.max_new_tokens or to_length)
    penalty = generation.length_penalty
    return GenerateBeam(
        generation.num_beams or 1, longest, 1.0 if penalty is None else penalty,
        early_stopping=generation.early_stopping or False,
    )  # fmt: skip


LONGEST = 20
"""Number of new pieces in transformers if no length is configured."""
