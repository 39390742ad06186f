"""Hard attention trained by backpropagation: straight-through Gumbel-softmax (Jang et al. 2017)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from caption.attention.alignments.hard import Multinoulli, one_hot
from caption.attention.options import above_zero
from caption.attention.stochastic import AtTest


class GumbelSoftmax(Multinoulli):
    """z = a_s with s ~ Multinoulli(α), and the gradient of a relaxed sample.

    With Gumbel noise g, s = argmax(log α + g), which is distributed as α; the gradient is that of softmax((log α + g) /
    temperature). No estimator is needed, so the objective is `CrossEntropy`. The gradient is biased, because it is that
    of the relaxed context instead of the context that was read. A lower temperature lowers the bias and raises the
    variance.

    Args:
        temperature: of the relaxed sample.
        expectation: probability of the expectation in training.
        share: see `Multinoulli`.
        at_test: see `Multinoulli`.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        expectation: float = 0.0,
        share: Literal["batch", "caption"] = "caption",
        at_test: AtTest = "expectation",
    ) -> None:
        super().__init__(expectation, share, at_test)
        above_zero(self, temperature=temperature)
        self.temperature = temperature

    def _sample(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        tiny = torch.finfo(weights.dtype).tiny  # its logarithm is finite
        noise = -torch.empty_like(weights).exponential_().clamp_min(tiny).log()
        noisy = weights.clamp_min(tiny).log() + noise
        location = noisy.argmax(-1)
        relaxed = (noisy / self.temperature).softmax(-1)
        return location, one_hot(location, weights) + (relaxed - relaxed.detach())

    def _log_prob(self, weights: Tensor, location: Tensor, chooses: Tensor) -> None:
        return None  # no score-function term
