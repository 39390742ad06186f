"""Constrained beam search: captions that must contain given words (Anderson et al. 2017, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from caption.core.errors import UserError
from caption.search.beam import Beam, BeamSearch, no_endings, padded_topk
from caption.search.loop import Endings, Frontier, Search

MOST = 4
"""Constraints of an image: the states, and with them the work, double with each."""


class Automaton(NamedTuple):
    """What captions of B images must be like, as automata of S states that read words. They begin in state 0."""

    transitions: Tensor
    """(B, S, V) int64, the state after each word; −1 for a word that may not follow."""
    accepting: Tensor
    """(B, S) bool: a caption that ends in this state is as wanted."""


def mentioning(wanted: Sequence[Sequence[Sequence[int]]], words: int) -> Automaton:
    """Automata of captions that contain one word of each of several sets.

    A state is the set of constraints that are met so far, as a binary number.

    Args:
        wanted: of each image its constraints, each a set of words of which one must occur.
        words: V.

    Raises:
        UserError: an image has more than `MOST` constraints.
    """
    most = max((len(constraints) for constraints in wanted), default=0)
    if most > MOST:
        raise UserError(f"{most} constraints on a caption are too many: give at most {MOST}")
    states = torch.arange(2**most)
    transitions = states[None, :, None].repeat(len(wanted), 1, words)
    accepting = torch.zeros(len(wanted), len(states), dtype=torch.bool)
    for image, constraints in enumerate(wanted):
        for bit, alternatives in enumerate(constraints):
            transitions[image, :, list(alternatives)] |= 1 << bit
        accepting[image] = (states & (2 ** len(constraints) - 1)) == 2 ** len(constraints) - 1
    return Automaton(transitions, accepting)


@dataclass(frozen=True)
class ConstrainedBeamSearch(Search):
    """Beam search with a beam for each state of an automaton, for one batch of images.

    Every step takes, for each state, the `beam_size` most probable of all one-word extensions that lead to it. A
    caption that meets its constraints therefore competes with its like alone, and is not crowded out by more probable
    ones that do not. The best caption that ends in an accepting state is returned, ranked as by `BeamSearch`; only if
    none was found, the best of those that ended in other states.

    With one state, which is accepting, it is `BeamSearch`. With S states it takes S times as long.

    Args:
        search: `beam_size` for each state, and all else.
        automaton: of the batch's images.
    """

    search: BeamSearch
    automaton: Automaton

    @property
    def max_length(self) -> int:
        return self.search.max_length

    def frontier(self, images: int, end: int, device: torch.device) -> Frontier:
        automaton = Automaton(*(field.to(device) for field in self.automaton))
        return _BeamOfStates(self.search, automaton, end, device)


class _BeamOfStates(Beam):
    """A beam whose places s K ... (s + 1) K − 1 belong to state s."""

    def __init__(self, search: BeamSearch, automaton: Automaton, end: int, device: torch.device) -> None:
        images, states = automaton.accepting.shape
        super().__init__(replace(search, beam_size=search.beam_size * states), images, end, device)
        self.width = search.beam_size
        # Of the images in the batch.
        self.transitions, self.accepting = automaton
        # For all B images, the best that ended in other states.
        self.rejected = no_endings(images, search.candidates, device, finished=True)

    def keep(self, staying: Tensor) -> None:
        super().keep(staying)
        self.transitions, self.accepting = self.transitions[staying], self.accepting[staying]

    def endings(self) -> Endings:
        groups = (self.finished, self.rejected, self.unfinished)
        both = Endings(*(torch.cat(fields, dim=1) for fields in zip(*groups, strict=True)))
        ranks = torch.cat([torch.full_like(group.slots, -number) for number, group in enumerate(groups)], 1)
        exists = both.scores > -math.inf
        both = both._replace(finished=both.finished & exists)
        return both.best(self.search.candidates, ranks.where(exists, -len(groups)))

    def _best_extensions(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        hypotheses, words = log_probs.shape[1:]
        states = torch.arange(hypotheses, device=log_probs.device) // self.width
        totals = (self.log_probs[..., None] + log_probs).flatten(1)
        after = self.transitions[:, states].flatten(1)
        by_state = (totals.where(after == state, -math.inf) for state in range(self.accepting.shape[1]))
        largest = [padded_topk(of_state, self.width) for of_state in by_state]
        best, chosen = (torch.cat(parts, 1) for parts in zip(*largest, strict=True))
        terms = log_probs.flatten(1).gather(1, chosen)
        return best, chosen // words, chosen % words, terms

    def _pool(self, rows: Tensor, log_probs: Tensor) -> None:
        wanted = self.accepting.repeat_interleave(self.width, dim=1)
        super()._pool(rows, log_probs.where(wanted, -math.inf))
        accepted, self.finished = self.finished, self.rejected
        super()._pool(rows, log_probs.where(~wanted, -math.inf))
        self.rejected, self.finished = self.finished, accepted
