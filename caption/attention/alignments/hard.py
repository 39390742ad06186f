"""Hard attention (Xu et al. 2015, section 4.1): samples one region, s ~ Multinoulli(α), eqs. 8 and 9."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from caption.attention.base import GridMemory, Query
from caption.attention.scored import Alignment
from caption.attention.stochastic import AtTest, Stochastic
from caption.core.errors import UserError
from caption.core.tensor_tree import TensorTree


class Multinoulli(Stochastic, Alignment):
    """z = a_s with s ~ Multinoulli(α). Train it with an estimator: see `caption.objectives.Reinforce`.

    In training, a caption reads the expected context Σ α_i a_i at all its steps with probability `expectation`, which
    lowers the variance (section 4.1). Its `location` is then -1 and its `log_prob` 0, so it adds no score-function
    term.

    Args:
        expectation: probability of the expectation in training; 0.5 in the paper.
        share: "caption" = the choice between sample and expectation is drawn for each caption, as in the paper ("for a
            given image"); "batch" = once for the batch, as in the authors' code.
        at_test: outside training, read the expected context (the authors' default), the most probable region, or a
            sample. `caption.attention.override_at_test` changes it for a trained model.
    """

    def __init__(
        self,
        expectation: float = 0.5,
        share: Literal["batch", "caption"] = "caption",
        at_test: AtTest = "expectation",
    ) -> None:
        super().__init__(at_test)
        if not 0 <= expectation <= 1:
            raise UserError(f"expectation must be a probability, not {expectation}")
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

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return scores.softmax(-1)

    def select(
        self, weights: Tensor, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The region to read, s̃ ~ Multinoulli(α) or the most probable one, for hypotheses that choose a region.

        Args:
            weights: (B, K, L) α, perhaps edited: samples and log p are those of the normalised weights.
            state: (B, K) bool, True for hypotheses that choose; None = none of them, as for hypothetical maps.

        Returns:
            weights (B, K, L), one-hot where a region was chosen; its index (B, K), else -1; log p (B, K), else 0.
        """
        if state is None:
            return weights, None, None
        total = weights.sum(-1, keepdim=True)
        chooses = state & (total.squeeze(-1) > 0)  # edits may leave no weight
        # Without a division by 0, whose gradient would be NaN although it is not used.
        alpha = torch.where(chooses[..., None], weights / total.where(total > 0, 1.0), 1 / weights.shape[-1])
        if self.training or self.at_test == "sample":
            location, chosen = self._sample(alpha)
        else:  # evaluation draws no random numbers
            location = weights.argmax(-1)
            chosen = one_hot(location, weights)
        return (
            torch.where(chooses[..., None], chosen, weights),
            torch.where(chooses, location, -1),
            self._log_prob(alpha, location, chooses),
        )

    def _sample(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """α (B, K, L) -> locations (B, K), and the weights s (B, K, L) of the weighted sum."""
        location = self.draw(weights)
        return location, one_hot(location, weights)

    def _log_prob(self, weights: Tensor, location: Tensor, chooses: Tensor) -> Tensor | None:
        """(B, K) log α of the location, 0 where nothing was chosen."""
        probability = weights.gather(-1, location[..., None]).squeeze(-1)
        return torch.where(chooses, probability.log(), 0.0)


def one_hot(location: Tensor, like: Tensor) -> Tensor:
    """(B, K) -> (B, K, L), with the dtype and L of `like`."""
    return functional.one_hot(location, like.shape[-1]).to(like.dtype)
