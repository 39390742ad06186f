"""Soft attention (Xu et al. 2015, section 4.2): the weights are the softmax of the scores, eq. 5."""

from __future__ import annotations

from torch import Tensor

from caption.attention.base import Query
from caption.attention.scored import Aligned, Alignment, ScoredMemory
from caption.tensor_tree import TensorTree


class Softmax(Alignment):
    """α = softmax(e). The context is the expectation Σ α_i a_i, so everything is differentiable."""

    def forward(
        self, scores: Tensor, query: Query, memory: ScoredMemory, state: TensorTree = None
    ) -> Aligned:
        return Aligned(scores.softmax(-1))
