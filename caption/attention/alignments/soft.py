"""Soft attention (Xu et al. 2015, section 4.2): the weights are the softmax of the scores, eq. 5."""

from __future__ import annotations

from torch import Tensor

from caption.attention.base import GridMemory, Query
from caption.attention.scored import Alignment
from caption.core.tensor_tree import TensorTree


class Softmax(Alignment):
    """α_i = exp(e_i) / Σ_k exp(e_k). The context is the expectation Σ_i α_i a_i, so everything is differentiable."""

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return scores.softmax(-1)
