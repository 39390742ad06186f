"""Symmetric score: e_i = a_iᵀ Pᵀ D P h (after Lu, Wang et al. 2019, COSNet)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scored import Score, check_equal_lengths
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class SymmetricScore(Score):
    """e_i = (P a_i)ᵀ D (P h), the general score a_iᵀ W h with a symmetric W = Pᵀ D P, so that e(a, h) = e(h, a).

    P projects both sides to a common space, where the diagonal D scales each feature. Every symmetric W has this form
    with an orthogonal P. Here P need not be orthogonal, which gives the same set of W. D is 1 before training.

    Raises:
        UserError: when built, regions and queries have different lengths.
    """

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        check_equal_lengths(self, region_size, query_sizes)
        self.project = nn.Linear(region_size, region_size, bias=False)  # P
        self.scale = nn.Parameter(torch.ones(region_size))  # D

    def keys(self, regions: Regions) -> Tensor:
        """(B, L, D) D P a_i."""
        return self.project(regions.vectors) * self.scale

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return self.project(query.hidden) @ memory.keys.mT
