"""Hard attention (Xu et al. 2015, section 4.1): one region is sampled, s ~ Multinoulli(α), eqs. 8 and 9."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from caption.attention.scored import Aligned, Alignment
from caption.parts import check_choice
from caption.records import Record


class Multinoulli(Alignment):
    """z = a_s with s ~ Multinoulli(α). Training it takes an estimator: see `caption.objectives.reinforce`.

    In training, a caption uses with probability `expectation` the expected context Σ α_i a_i at all its steps
    instead of samples (section 4.1: it lowers the variance). Its `location` is then -1 and its `log_prob` 0, so
    that no score-function term arises from it.

    Args:
        expectation: probability of the expectation in training; the paper's is 0.5.
        share: whether one coin decides for the whole batch, as in the authors' code, or one for each caption.
        at_test: what is read outside training: the expected context (the authors' default), the most
            probable region, or a sample.
    """

    def __init__(
        self,
        expectation: float = 0.5,
        share: Literal["batch", "caption"] = "batch",
        at_test: Literal["expectation", "argmax", "sample"] = "expectation",
    ) -> None:
        super().__init__()
        if not 0 <= expectation <= 1:
            raise ValueError(f"expectation is a probability, not {expectation}")
        check_choice("share", share, ("batch", "caption"))
        check_choice("at_test", at_test, ("expectation", "argmax", "sample"))
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
        log_weights = scores.log_softmax(
            -1
        )  # from the scores: log of a weight that underflowed would be -inf
        weights = log_weights.exp()
        location = self._choose(weights)
        chosen = log_weights.gather(-1, location[..., None]).squeeze(-1)
        one_hot = functional.one_hot(location, weights.shape[-1]).to(weights.dtype)
        return Aligned(
            weights,
            read=torch.where(state[..., None], one_hot, weights),
            state=state,
            location=torch.where(state, location, -1),
            log_prob=torch.where(state, chosen, 0.0),
        )

    def _choose(self, weights: Tensor) -> Tensor:
        """(B, K, L) -> (B, K): a sample; at test time, unless samples are wanted, the most probable region."""
        if not self.training and self.at_test != "sample":  # so that evaluating draws no random numbers
            return weights.argmax(-1)
        flat = weights.detach().float().flatten(0, -2)
        return flat.multinomial(1).view(weights.shape[:-1])
