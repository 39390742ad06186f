"""Hard attention (Xu et al. 2015, section 4.1): samples one region, s ~ Multinoulli(α), eqs. 8 and 9."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from caption.attention.base import GridMemory, Query
from caption.attention.scored import Alignment, AlignmentOutput, Selection
from caption.attention.stochastic import AtTest, Stochastic
from caption.core.tensor_tree import TensorTree


class Multinoulli(Stochastic, Alignment):
    """z = a_s with s ~ Multinoulli(α). Train it with an estimator: see `caption.objectives.Reinforce`.

    In training, a caption reads the expected context Σ α_i a_i at all its steps with probability `expectation`, which
    lowers the variance (section 4.1). Its `location` is then -1 and its `log_prob` 0, so it adds no score-function
    term.

    Args:
        expectation: probability of the expectation in training; the paper's is 0.5.
        share: whether the choice is drawn for each caption, as in the paper ("for a given image"), or once for the
            whole batch, as in the authors' code.
        at_test: what is read outside training: the expected context (the authors' default), the most probable region,
            or a sample. `caption.attention.override_at_test` changes it for a trained model.
    """

    def __init__(
        self,
        expectation: float = 0.5,
        share: Literal["batch", "caption"] = "caption",
        at_test: AtTest = "expectation",
    ) -> None:
        super().__init__(at_test)
        if not 0 <= expectation <= 1:
            raise ValueError(f"expectation must be a probability, not {expectation}")
        self.expectation = expectation
        self.share = share

    def start(self, memory: GridMemory, hypotheses: int) -> Tensor:
        """(B, K) bool: True for the captions that sample. Drawn once per caption."""
        shape = (memory.values.shape[0], hypotheses)
        device = memory.values.device
        if not self.training:
            return torch.full(shape, self.at_test != "expectation", device=device)
        if self.draws_overridden:
            return torch.ones(shape, dtype=torch.bool, device=device)
        coins = torch.rand((1, 1) if self.share == "batch" else shape, device=device)
        return (coins >= self.expectation).expand(shape)

    def forward(
        self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None
    ) -> AlignmentOutput:
        # Computed from the scores: the log of an underflowed weight would be -inf.
        log_weights = scores.log_softmax(-1)
        return AlignmentOutput(log_weights.exp(), log_weights, state)

    def select(self, weights: Tensor, aligned: AlignmentOutput | None = None) -> Selection:
        """The regions that are read, s̃ ~ Multinoulli(α) or the most probable ones, where a hypothesis chooses any.

        Args:
            weights: (B, K, L) α, perhaps edited: samples and log p are then of the edited ones, normalised.
            aligned: what `forward` returned; None = nothing is chosen, as for hypothetical maps.

        Returns:
            Weights (B, K, L), one-hot where a region was chosen; its index (B, K), else -1; log p (B, K), else 0.
        """
        if aligned is None:
            return Selection(weights)
        sampled, log_weights = aligned.state, aligned.log_weights
        assert log_weights is not None
        if weights is not aligned.weights:  # edited maps; with no weight left, nothing is sampled
            has_weight = weights.sum(-1) > 0
            sampled, log_weights = (
                sampled & has_weight,
                weights.where(has_weight[..., None], 1.0).log().log_softmax(-1),
            )
        if self.training or self.at_test == "sample":
            location, read = self._sample(log_weights)
        else:  # evaluation draws no random numbers
            location = weights.argmax(-1)
            read = one_hot(location, weights)
        return Selection(
            torch.where(sampled[..., None], read, weights),
            torch.where(sampled, location, -1),
            self._log_prob(log_weights, location, sampled),
        )

    def _sample(self, log_weights: Tensor) -> tuple[Tensor, Tensor]:
        """log α (B, K, L) -> locations (B, K), and the weights s (B, K, L) for reading the regions."""
        location = self.draw(log_weights)
        return location, one_hot(location, log_weights)

    def _log_prob(self, log_weights: Tensor, location: Tensor, sampled: Tensor) -> Tensor | None:
        """(B, K) log α of the location, 0 where the expectation was used."""
        return torch.where(sampled, log_weights.gather(-1, location[..., None]).squeeze(-1), 0.0)


def one_hot(location: Tensor, like: Tensor) -> Tensor:
    """(B, K) -> (B, K, L), with the dtype and the L of `like`."""
    return functional.one_hot(location, like.shape[-1]).to(like.dtype)
