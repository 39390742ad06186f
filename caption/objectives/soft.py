"""The loss of soft attention: cross-entropy and the doubly stochastic term, eq. 14."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.decoders.base import Unrolled
from caption.objectives.base import Loss, Objective, word_log_likelihoods
from caption.objectives.regularizers import doubly_stochastic, entropy


class CrossEntropy(Objective):
    """L_d = −log p(y|a) + λ Σ_i (1 − Σ_t α[t,i])², summed over a caption's words and averaged over captions (eq. 14).

    Args:
        doubly_stochastic: λ; 0 leaves the term out.
        entropy: cost of a nat of H[α[t]] at each word, which makes the maps sharper; the paper has none.
        entropy_after: training batches before that cost begins. At the start, when looking anywhere is as good as
            anywhere else, it would fix all maps on one region for good.
        label_smoothing: share of each target spread evenly over all words (Szegedy et al. 2016); the paper has none.
    """

    batches: Tensor

    def __init__(
        self,
        doubly_stochastic: float = 1.0,
        entropy: float = 0.0,
        entropy_after: int = 0,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.doubly_stochastic = doubly_stochastic
        self.entropy = entropy
        self.entropy_after = entropy_after
        self.label_smoothing = label_smoothing
        if entropy_after:
            self.register_buffer(
                "batches", torch.zeros((), dtype=torch.int64)
            )  # counted in training; resumes with it

    def forward(self, unrolled: Unrolled, targets: Tensor) -> Loss:
        there = unrolled.there()
        captions = there.sum()
        log_likelihoods = word_log_likelihoods(unrolled, targets)
        value = -log_likelihoods.sum() / captions
        if self.label_smoothing:
            uniform = unrolled.logits.float().log_softmax(-1).mean(-1).sum() / captions
            value = (1 - self.label_smoothing) * value - self.label_smoothing * uniform
        logged = {"NLL": -log_likelihoods.mean().detach()}
        if self.doubly_stochastic:
            penalty = (doubly_stochastic(unrolled) * there).sum() / captions
            logged["doubly_stochastic"] = penalty.detach()
            value = value + self.doubly_stochastic * penalty
        if self.entropy:
            spread = entropy(unrolled.trace.weights)
            logged["attention_entropy"] = spread.mean().detach()
            if not self.entropy_after or self.batches >= self.entropy_after:
                value = value + self.entropy * spread.sum() / captions
        if self.training and self.entropy_after:
            self.batches += 1
        return Loss(value, logged)
