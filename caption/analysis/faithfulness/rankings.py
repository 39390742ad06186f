"""Orders in which regions are hidden: by attention, and by the rankings that attention is compared with.

An order takes a `Trial` and gives scores (B', R, L); the region with the highest score is hidden, or shown, first. R
is 1, or the number of draws where the order is random.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from caption.analysis.faithfulness.ablation import Ablate
from caption.analysis.replay import Replay, Step


class Trial(NamedTuple):
    """One step, and the means to measure the effect of hiding regions from it."""

    replay: Replay
    step: Step
    ablate: Ablate
    generator: torch.Generator

    def log_probs(self, visible: Tensor) -> Tensor:
        """(B', K, L) bool or 0 to 1, how much of each region is visible -> (B', K) log p of the word."""
        return self.step.of_word(self.replay.rerun(self.step, self.ablate(self.step, visible)))


Order = Callable[[Trial], Tensor]


def by_attention(trial: Trial) -> Tensor:
    """|α|, the order under test."""
    return trial.step.weights.abs()[:, None]


def by_gradient(trial: Trial) -> Tensor:
    """‖∂ log p / ∂ a_i‖: saliency (Simonyan et al. 2014), on regions instead of pixels.

    Where the context is Σ α_i a_i, the gradient through the context is α_i ‖∂ log p / ∂ z‖, which is the order of α
    itself; only the gradient through the scores differs. This order is therefore not independent of attention.
    """
    return trial.replay.gradient(trial.step).norm(dim=-1)[:, None]


def by_gradient_times_input(trial: Trial) -> Tensor:
    """a_i · ∂ log p / ∂ a_i: to first order, what the word would lose if the vector were zero."""
    return (trial.replay.gradient(trial.step) * trial.step.views[0].vectors).sum(-1)[:, None]


def by_gradient_of_hiding(trial: Trial) -> Tensor:
    """∂ log p / ∂ k_i, where k_i is how much of a region is visible: to first order, the fall when it is hidden.

    Its reference is the vector that takes the place of a hidden region; that of a_i · ∂ log p / ∂ a_i is zero. With
    z = Σ α_i a_i and g = ∂ log p / ∂ z it is α_i g·(a_i − z) for `Removed`, α_i g·(a_i − vector) for `Replaced`.
    """
    with torch.enable_grad():
        visible = torch.ones_like(trial.step.weights[:, None], requires_grad=True)
        return torch.autograd.grad(trial.log_probs(visible).sum(), visible)[0]


def by_occlusion(trial: Trial) -> Tensor:
    """How much log p falls when the region alone is hidden: measured, not estimated, for single regions."""
    weights = trial.step.weights
    visible = ~torch.eye(weights.shape[1], dtype=torch.bool, device=weights.device)
    return (trial.step.log_prob[:, None] - trial.log_probs(visible.expand(len(weights), -1, -1)))[:, None]


class AtRandom:
    """Random orders; several are drawn for each word.

    Args:
        draws: number of orders for each word.
    """

    def __init__(self, draws: int = 5) -> None:
        self.draws = draws

    def __call__(self, trial: Trial) -> Tensor:
        words, regions = trial.step.weights.shape
        scores = torch.rand((words, self.draws, regions), generator=trial.generator)
        return scores.to(trial.step.weights.device)


ORDERS: dict[str, Order] = {
    "attention": by_attention,
    "random": AtRandom(),
    "gradient": by_gradient,
    "gradient x input": by_gradient_times_input,
    "gradient of hiding": by_gradient_of_hiding,
    "occlusion": by_occlusion,
}


def ranks(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Rank of each region in the order, 0 for the highest score; (..., L) int64. Equal scores are ranked at random."""
    shuffle = torch.rand(scores.shape, generator=generator).to(scores.device).argsort(-1)
    order = shuffle.gather(-1, scores.gather(-1, shuffle).argsort(dim=-1, descending=True, stable=True))
    return order.argsort(-1)
