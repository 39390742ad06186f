"""Soft attention (Xu et al. 2015, section 4.2): the weights are the softmax of the scores, eq. 5."""

from __future__ import annotations

from torch import Tensor

from caption.attention.scored import Aligned, Alignment
from caption.tensor_tree import Record


class Softmax(Alignment):
    """α = softmax(e); the context is the expectation Σ α_i a_i, so everything is differentiable."""

    def forward(self, scores: Tensor, state: Record = None) -> Aligned:
        weights = scores.softmax(-1)
        return Aligned(weights, read=weights)
