"""Baselines b of the score-function estimator, subtracted from the reward that is credited to a location.

A baseline that does not depend on the sampled location leaves the estimator unbiased, because E[∂log p(s)] = 0. The
closer it is to the expected reward, the lower the variance (Williams 1992).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.core.errors import UserError
from caption.core.parts import Part
from caption.core.runtime.distributed import total
from caption.decoders.base import Unrolled


class Rewards(NamedTuple):
    """The rewards of a batch, without gradient: K captions of each image, S samples of each caption."""

    credited: Tensor
    """(B, K, S, T) the credit of each step's location, 0 for padding."""
    totals: Tensor
    """(B, K, S) the reward of each sample's whole caption."""
    share: Tensor
    """(B, K, S, T) the fraction of the caption's words that the credit covers: 1, or with credit "future" the fraction
    of the remaining words."""
    unrolled: Unrolled
    """The unrolled samples, (B, K · S, T)."""
    greedy: Callable[[], Tensor]
    """Computes (B, K, T): the credit of each step if every step reads its most probable region."""


class Baseline(Part, nn.Module):
    """Base class of baselines. They are used without gradient."""

    least_samples = 1
    """Minimal number of samples of each caption."""

    def build(self, query_size: int) -> None:
        """Create the weights, if there are any. Called once."""

    def forward(self, rewards: Rewards) -> Tensor:
        """b, of a shape that broadcasts to (B, K, S, T)."""
        raise NotImplementedError

    def learn(self, rewards: Rewards) -> Tensor | None:
        """Update the baseline. Called in training after b was used for the batch, so that no reward is compared with
        itself.

        Returns:
            Σ over the batch's real steps of a loss for the baseline's own weights, a scalar with gradient, whose mean
            per word the objective adds to its own loss; None if the baseline has no weights.
        """
        return None


class NoBaseline(Baseline):
    """b = 0, with high variance, because the credit includes the difficulty of the words."""

    def forward(self, rewards: Rewards) -> Tensor:
        return torch.zeros((), device=rewards.credited.device)


class MovingAverage(Baseline):
    """b ← decay · b + (1 − decay) · mean reward of the batch: one number for all captions (section 4.1).

    With credit "future", the fraction `Rewards.share` of b is used.

    Args:
        decay: 0.9 in the paper.
    """

    value: Tensor

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        if not 0 <= decay <= 1:
            raise UserError(f"decay must be between 0 and 1, not {decay}")
        self.decay = decay
        self.register_buffer("value", torch.zeros(()))

    def forward(self, rewards: Rewards) -> Tensor:
        return rewards.share * self.value

    def learn(self, rewards: Rewards) -> None:
        has_steps = rewards.unrolled.has_steps().view(rewards.totals.shape)
        totals = rewards.totals.where(has_steps, 0.0)
        # The mean over all processes. A batch without captions has no reward and does not change the average.
        reward, count = total(torch.stack([totals.sum(), has_steps.sum().to(totals.dtype)]))
        updated = self.decay * self.value + (1 - self.decay) * reward / count
        self.value.copy_(torch.where(count > 0, updated, self.value))


class LeaveOneOut(Baseline):
    """b of a sample = the mean credit of the caption's other samples at the same step.

    It has no state and no weights, and adapts to the difficulty of each word (Mnih & Rezende 2016; Kool et al. 2019).
    It does not depend on the sample itself, so the estimator is unbiased.
    """

    least_samples = 2

    def forward(self, rewards: Rewards) -> Tensor:
        credited = rewards.credited
        sums = credited.sum(2, keepdim=True) - credited  # of the other samples
        return sums / (credited.shape[2] - 1)


class Critic(Baseline):
    """b[t] = v · tanh(W h[t-1] + c) + d: a small network that predicts the credit from the decoder's state.

    h[t-1] depends on the image and the words so far, but not on the location of step t (Mnih & Gregor 2014). The
    network is trained on the squared error, without a gradient to the decoder.

    Args:
        size: width of the hidden layer.
    """

    def __init__(self, size: int = 128) -> None:
        super().__init__()
        self.size = size

    def build(self, query_size: int) -> None:
        self.network = nn.Sequential(nn.Linear(query_size, self.size), nn.Tanh(), nn.Linear(self.size, 1))

    def _predicted(self, rewards: Rewards) -> Tensor:
        """(N,) the predicted credit at the real steps."""
        return self.network(rewards.unrolled.queries.to(rewards.credited.dtype)).squeeze(-1)

    def forward(self, rewards: Rewards) -> Tensor:
        return rewards.unrolled.unpack(self._predicted(rewards).detach()).view(rewards.credited.shape)

    def learn(self, rewards: Rewards) -> Tensor:
        predicted = self._predicted(rewards)
        credited = rewards.unrolled.pack(rewards.credited.flatten(1, 2))
        return functional.mse_loss(predicted, credited, reduction="sum")


class GreedyAttentionBaseline(Baseline):
    """b = the credit of the same caption if every step reads its most probable region.

    A sample's advantage is its improvement over greedy attention: the idea of self-critical sequence training (Rennie
    et al. 2017), applied to locations instead of words; for words see `SelfCriticalSequence`. It needs a second unroll,
    without gradient and without dropout.
    """

    def forward(self, rewards: Rewards) -> Tensor:
        return rewards.greedy()[:, :, None]
