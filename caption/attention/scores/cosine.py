"""Cosine score: e_i = s · cos(q, k_i) (Graves et al. 2014, section 3.3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.options import above_zero
from caption.attention.scores.dot import ScaledDotScore
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class CosineScore(ScaledDotScore):
    """e_i = s · (q · k_i) / (‖q‖ ‖k_i‖), with k_i = W_k a_i + b and q = W_q h + b_q.

    A cosine is between -1 and 1, so under a softmax no weight exceeds 1 / (1 + (L − 1) e^(−2s)): 0.105 for s = 1 and 64
    regions. The learned, positive key strength s raises this bound.

    Args:
        size: length of keys and queries.
        strength: initial value of s; None = no s.

    Raises:
        UserError: the strength is not above 0.
    """

    def __init__(self, size: int = 512, strength: float | None = 10.0) -> None:
        super().__init__(size)
        above_zero(self, strength=strength)
        self.strength = strength

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        super().build(region_size, query_sizes)
        if self.strength is not None:
            self.log_strength = nn.Parameter(torch.tensor(float(self.strength)).log())

    def keys(self, regions: Regions) -> Tensor:
        """(B, L, A) keys of length 1."""
        return functional.normalize(super().keys(regions), dim=-1)

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        queries = functional.normalize(self.query(query.hidden), dim=-1)
        cosines: Tensor = queries @ memory.keys.mT
        return cosines if self.strength is None else self.log_strength.exp() * cosines
