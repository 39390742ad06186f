"""Baselines b of the score-function estimator: what a reward is compared with before it is credited to a location.

A baseline that does not depend on the location it judges leaves the estimator's expectation as it is, since
E[∂log p(s)] = 0, and the closer it is to the expected reward, the lower the variance (Williams 1992).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from caption.decoders.base import Unrolled
from caption.parts import Part


class Returns(NamedTuple):
    """The rewards of a batch. K captions of each image, S samples of each caption. No gradient anywhere."""

    credited: Tensor
    """(B, K, S, T) what the location of each step is credited with, 0 where there is no step."""
    totals: Tensor
    """(B, K, S) the reward of each sample's whole caption."""
    share: Tensor
    """(B, K, S, T) how much of the caption's words the credit covers: 1, or with credit "future" the part to come."""
    unrolled: Unrolled
    """The samples, as (B, K · S, T)."""
    greedy: Callable[[], Tensor]
    """Makes (B, K, T): the credit of each step had every step looked at its most probable region."""


class Baseline(Part, nn.Module):
    """What is subtracted from the credit. Used without gradient."""

    least_samples = 1
    """Samples of each caption that it needs."""

    def build(self, query_size: int) -> None:
        """Create the weights, for baselines that have some. Called once."""

    def forward(self, returns: Returns) -> Tensor:
        """b, of a shape that broadcasts to (B, K, S, T)."""
        raise NotImplementedError

    def learn(self, returns: Returns) -> Tensor | None:
        """Called in training once the batch has used b, so that no reward is compared with itself.

        Returns:
            a loss of the baseline's own weights, a scalar, to be added to the objective's; or None.
        """
        return None


class NoBaseline(Baseline):
    """b = 0: unbiased, and of high variance, since every location is blamed for the words' being hard."""

    def forward(self, returns: Returns) -> Tensor:
        return torch.zeros((), device=returns.credited.device)


class MovingAverage(Baseline):
    """b ← decay · b + (1 − decay) · mean reward of the batch: one number for all captions (section 4.1).

    Credit for the future is compared with the same share of b.

    Args:
        decay: the paper's is 0.9.
    """

    value: Tensor

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        if not 0 <= decay <= 1:
            raise ValueError(f"decay is between 0 and 1, not {decay}")
        self.decay = decay
        self.register_buffer("value", torch.zeros(()))

    def forward(self, returns: Returns) -> Tensor:
        return returns.share * self.value

    def learn(self, returns: Returns) -> None:
        there = returns.unrolled.has_steps().view(returns.totals.shape)
        reward = returns.totals[there].mean()
        if distributed.is_available() and distributed.is_initialized():  # the same on all processes
            distributed.all_reduce(reward)
            reward = reward / distributed.get_world_size()
        self.value.mul_(self.decay).add_((1 - self.decay) * reward)


class LeaveOneOut(Baseline):
    """b of a sample = the mean credit of the caption's other samples at the same step.

    It needs no memory and nothing to learn, and knows how hard each word of this very image is (Mnih & Rezende 2016;
    Kool et al. 2019). Independent of the sample it judges, so unbiased.
    """

    least_samples = 2

    def forward(self, returns: Returns) -> Tensor:
        credited = returns.credited
        others = credited.sum(2, keepdim=True) - credited
        return others / (credited.shape[2] - 1)


class Critic(Baseline):
    """b[t] = v · tanh(W h[t-1] + c) + d: a small network that predicts the credit from the decoder's state.

    h[t-1] knows the image and the words so far, and not yet where step t looks (Mnih & Gregor 2014). The network is
    trained on the squared error; no gradient of it reaches the decoder.

    Args:
        size: width of the hidden layer.
    """

    def __init__(self, size: int = 128) -> None:
        super().__init__()
        self.size = size

    def build(self, query_size: int) -> None:
        self.network = nn.Sequential(nn.Linear(query_size, self.size), nn.Tanh(), nn.Linear(self.size, 1))

    def _predicted(self, returns: Returns) -> Tensor:
        """(N,) at the real steps."""
        return self.network(returns.unrolled.queries.to(returns.credited.dtype)).squeeze(-1)

    def forward(self, returns: Returns) -> Tensor:
        return returns.unrolled.unpack(self._predicted(returns).detach()).view(returns.credited.shape)

    def learn(self, returns: Returns) -> Tensor:
        predicted = self._predicted(returns)
        credited = returns.unrolled.pack(returns.credited.flatten(1, 2))
        return functional.mse_loss(predicted, credited)


class SelfCritical(Baseline):
    """b = the credit of the same caption when every step looks at its most probable region (Rennie et al. 2017).

    A sample is credited with what it is better than the model's own best guess. Costs a second unroll, without gradient
    and without dropout.
    """

    def forward(self, returns: Returns) -> Tensor:
        return returns.greedy()[:, :, None]
