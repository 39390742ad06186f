"""Hard attention (Xu et al. 2015, section 4.1): one region is sampled, s ~ Multinoulli(α), eqs. 8 and 9."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.scored import Aligned, Alignment
from caption.parts import check_choice
from caption.tensor_tree import Record

AtTest = Literal["expectation", "argmax", "sample"]


class Multinoulli(Alignment):
    """z = a_s with s ~ Multinoulli(α). Training it takes an estimator: see `caption.objectives.Reinforce`.

    In training, a caption uses with probability `expectation` the expected context Σ α_i a_i at all its steps
    instead of samples (section 4.1: it lowers the variance). Its `location` is then -1 and its `log_prob` 0, so
    that no score-function term arises from it.

    Args:
        expectation: probability of the expectation in training; the paper's is 0.5.
        share: whether one coin decides for the whole batch, as in the authors' code, or one for each caption.
        at_test: what is read outside training: the expected context (the authors' default), the most
            probable region, or a sample. `caption.attention.at_test` chooses anew for a trained model.
    """

    def __init__(
        self,
        expectation: float = 0.5,
        share: Literal["batch", "caption"] = "batch",
        at_test: AtTest = "expectation",
    ) -> None:
        super().__init__()
        if not 0 <= expectation <= 1:
            raise ValueError(f"expectation is a probability, not {expectation}")
        check_choice("share", share, ("batch", "caption"))
        check_choice("at_test", at_test, get_args(AtTest))
        self.expectation = expectation
        self.share = share
        self.at_test = at_test

    def start(self, images: int, hypotheses: int, like: Tensor) -> Record:
        """(B, K) bool: True for the captions that sample. Drawn once, since a caption does not change its mind."""
        shape = (images, hypotheses)
        if not self.training:
            return torch.full(shape, self.at_test != "expectation", device=like.device)
        coins = torch.rand((1, 1) if self.share == "batch" else shape, device=like.device)
        return (coins >= self.expectation).expand(shape)

    def forward(self, scores: Tensor, state: Record = None) -> Aligned:
        # From the scores: the logarithm of a weight that underflowed would be -inf.
        log_weights = scores.log_softmax(-1)
        weights = log_weights.exp()
        if self.training or self.at_test == "sample":
            location, chosen = self._sample(log_weights)
        else:  # evaluating draws no random numbers
            location = weights.argmax(-1)
            chosen = one_hot(location, weights)
        return Aligned(
            weights,
            read=torch.where(state[..., None], chosen, weights),
            state=state,
            location=torch.where(state, location, -1),
            log_prob=self._log_prob(log_weights, location, state),
        )

    def _sample(self, log_weights: Tensor) -> tuple[Tensor, Tensor]:
        """log α (B, K, L) -> locations (B, K), and s (B, K, L) with which the regions are read."""
        flat = log_weights.detach().float().exp().flatten(0, -2)
        location = flat.multinomial(1).view(log_weights.shape[:-1])
        return location, one_hot(location, log_weights)

    def _log_prob(self, log_weights: Tensor, location: Tensor, state: Tensor) -> Tensor | None:
        """(B, K) log α of the location, 0 where the expectation was used."""
        return torch.where(state, log_weights.gather(-1, location[..., None]).squeeze(-1), 0.0)


class GumbelSoftmax(Multinoulli):
    """z = a_s with s ~ Multinoulli(α), and the gradient of a relaxed sample: straight-through (Jang et al. 2017).

    With Gumbel noise g, s is the largest of log α + g, which is distributed as α says; the gradient is that of
    softmax((log α + g) / temperature). No estimator is needed, so its objective is `CrossEntropy`, but the gradient is
    biased: it is that of a context that was never read. A lower temperature lowers the bias and raises the variance.

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
        share: Literal["batch", "caption"] = "batch",
        at_test: AtTest = "expectation",
    ) -> None:
        super().__init__(expectation, share, at_test)
        if temperature <= 0:
            raise ValueError(f"temperature is above 0, not {temperature}")
        self.temperature = temperature

    def _sample(self, log_weights: Tensor) -> tuple[Tensor, Tensor]:
        exponential = torch.empty_like(log_weights).exponential_()
        noise = -exponential.clamp_min(torch.finfo(exponential.dtype).tiny).log()
        noisy = log_weights + noise
        location = noisy.argmax(-1)
        relaxed = (noisy / self.temperature).softmax(-1)
        return location, one_hot(location, log_weights) + (relaxed - relaxed.detach())

    def _log_prob(self, log_weights: Tensor, location: Tensor, state: Tensor) -> None:
        return None  # there is no score-function term


def one_hot(location: Tensor, like: Tensor) -> Tensor:
    """(B, K) -> (B, K, L), of the dtype and as long as `like`."""
    return functional.one_hot(location, like.shape[-1]).to(like.dtype)


@contextmanager
def at_test(model: nn.Module, how: AtTest) -> Iterator[None]:
    """Within it, the hard attention in `model` reads `how` outside training, whatever it was made to do.

    Args:
        model: captioner or decoder; a model without hard attention is left alone.
        how: "expectation", "argmax" or "sample".
    """
    check_choice("how", how, get_args(AtTest))
    parts = [part for part in model.modules() if isinstance(part, Multinoulli)]
    before = [part.at_test for part in parts]
    try:
        for part in parts:
            part.at_test = how
        yield
    finally:
        for part, own in zip(parts, before, strict=True):
            part.at_test = own
