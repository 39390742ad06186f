"""One word's step, and what it takes to measure how its probability depends on each region.

A map method that looks at single steps is a function of a `Trial`: it gives scores (B', R, L), one for each region, R
times if they are drawn at random. Only the word's own step changes: the words before and the decoder's state stay, so
all these methods explain the same number, log p of the word given its step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from caption.analysis.ablation import Ablate
from caption.analysis.replay import Replay, Step
from caption.results.caption import Caption

AT_ONCE = 8
"""Copies of the regions whose gradients are computed together; more are hardly faster, and take more memory."""


class Trial(NamedTuple):
    """The step of a word in each of B' captions."""

    replay: Replay
    step: Step
    ablate: Ablate
    generator: torch.Generator
    first: int = 0
    """Index of the first of the batch's photos among all photos."""

    @property
    def vectors(self) -> Tensor:
        """(B', L, D) the regions that the decoder gets, of the first view."""
        return self.step.views[0].vectors

    def own_features(self, vectors: Tensor) -> Tensor:
        """Vectors (B', L, D) without the class tokens that encoders of other people's models append to every region."""
        return vectors[..., : getattr(getattr(self.replay.decoder, "model", None), "region_size", None)]

    def log_probs(self, visible: Tensor) -> Tensor:
        """(B', K, L) bool or 0 to 1, how much of each region is visible -> (B', K) log p of the word."""
        return self.step.of_word(self.replay.rerun(self.step, self.ablate(self.step, visible)))

    def gradient(self) -> Tensor:
        """(B', L, D) ∂ log p / ∂ a_i."""
        return self.replay.gradient(self.step)

    def gradients(self, copies: Tensor) -> Tensor:
        """(C, B', L, D) ∂ log p / ∂ a_i at other regions (C, B', L, D), `AT_ONCE` copies at a time."""
        parts = []
        for part in copies.split(AT_ONCE):
            entries = torch.arange(part.shape[1], device=part.device).repeat(len(part))
            gradients = self.replay.gradient(self.step.take(entries), part.flatten(0, 1))
            parts.append(gradients.unflatten(0, part.shape[:2]))
        return torch.cat(parts)


Score = Callable[[Trial], Tensor]
"""A trial -> scores (B', R, L): high where the word depends on the region, or where it looked. R is 1, or the number of
draws."""


def scores_of(captions: Sequence[Caption]) -> Score:
    """The weights of captions as scores, of any method: one caption for each photo, on the decoder's first grid."""
    stepwise = [caption.stepwise.weights for caption in captions]

    def score(trial: Trial) -> Tensor:
        rows = [trial.first + row for row in trial.step.rows.tolist()]
        weights = np.stack([stepwise[row][trial.step.number] for row in rows])
        return torch.from_numpy(weights).to(trial.step.weights.device).flatten(1)[:, None]

    return score


def ranks(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Rank of each region in the order, 0 for the highest score; (..., L) int64. Equal scores are ranked at random."""
    shuffle = torch.rand(scores.shape, generator=generator).to(scores.device).argsort(-1)
    order = shuffle.gather(-1, scores.gather(-1, shuffle).argsort(dim=-1, descending=True, stable=True))
    return order.argsort(-1)
