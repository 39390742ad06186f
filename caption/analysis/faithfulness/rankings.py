"""In which order regions are hidden: by attention, and by what attention is held against.

An order takes a `Trial` and gives scores (B', R, L); the region with the highest score is hidden, or shown, first. R
is 1, or the number of draws where the order is random.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from caption.analysis.faithfulness.ablation import Hiding
from caption.analysis.replay import Moment, Replay


class Trial(NamedTuple):
    """One moment, with the means to ask what it depends on."""

    replay: Replay
    moment: Moment
    hide: Hiding
    regions: int
    """L, without what the hiding may have added to the memory."""
    generator: torch.Generator

    @property
    def weights(self) -> Tensor:
        """(B', L) α of the step."""
        return self.moment.weights[:, : self.regions]

    def log_probs(self, kept: Tensor) -> Tensor:
        """(B', K, L) bool, the regions left visible -> (B', K) log p of the word."""
        weights = self.hide(self.moment.weights[:, None], kept)
        return self.moment.of_word(self.replay.say(self.moment, weights))


Order = Callable[[Trial], Tensor]


def by_attention(trial: Trial) -> Tensor:
    """α: the claim under test is that this order is a good one."""
    return trial.weights[:, None]


def by_gradient(trial: Trial) -> Tensor:
    """‖∂ log p / ∂ a_i‖: saliency (Simonyan et al. 2014), on regions instead of pixels.

    Through what is read it is α_i ‖∂ log p / ∂ z‖, which is the order of α itself; what differs comes through the
    score, where a_i decides how much it is looked at. So it is no independent rival of attention.
    """
    return trial.replay.gradient(trial.moment)[:, None, : trial.regions].norm(dim=-1)


def by_gradient_times_input(trial: Trial) -> Tensor:
    """a_i · ∂ log p / ∂ a_i: what the word would lose, to first order, were the vector zero."""
    products = trial.replay.gradient(trial.moment) * trial.moment.vectors
    return products[:, None, : trial.regions].sum(-1)


def by_gradient_of_hiding(trial: Trial) -> Tensor:
    """∂ log p / ∂ k_i, where k_i is how much of a region is visible: the fall to first order when it is hidden.

    It counts from what hiding puts in the region's place, where a_i · ∂ log p / ∂ a_i counts from zero: with g =
    ∂ log p / ∂ z it is α_i g·(a_i − z) for `Removed`, α_i g·(a_i − vector) for `Replaced`.
    """
    gradient = trial.replay.gradient_of_weights(trial.moment)
    with torch.enable_grad():
        kept = torch.ones_like(trial.weights, requires_grad=True)
        hidden = trial.hide(trial.moment.weights[:, None], kept[:, None])[:, 0]
        return torch.autograd.grad((gradient * hidden).sum(), kept)[0][:, None]


def by_occlusion(trial: Trial) -> Tensor:
    """How much log p falls when the region alone is hidden: no estimate but the thing itself, for single regions."""
    weights = trial.weights
    alone = ~torch.eye(trial.regions, dtype=torch.bool, device=weights.device)
    whole = trial.moment.of_word(trial.moment.log_probs[:, None])
    return (whole - trial.log_probs(alone.expand(len(weights), -1, -1)))[:, None]


class AtRandom:
    """Any order is as good as another; several are drawn for each word.

    Args:
        draws: how many.
    """

    def __init__(self, draws: int = 5) -> None:
        self.draws = draws

    def __call__(self, trial: Trial) -> Tensor:
        shape = (len(trial.weights), self.draws, trial.regions)
        return torch.rand(shape, generator=trial.generator).to(trial.weights.device)


ORDERS: dict[str, Order] = {
    "attention": by_attention,
    "random": AtRandom(),
    "gradient": by_gradient,
    "gradient x input": by_gradient_times_input,
    "gradient of hiding": by_gradient_of_hiding,
    "occlusion": by_occlusion,
}


def ranks(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Place of each region in the order, 0 for the highest score; (..., L) int64. Equal scores are placed at random."""
    shuffle = torch.rand(scores.shape, generator=generator).to(scores.device).argsort(-1)
    order = shuffle.gather(-1, scores.gather(-1, shuffle).argsort(dim=-1, descending=True, stable=True))
    return order.argsort(-1)
