"""Trilinear score: e_i = w · [k_i; q; k_i ∘ q], element by element (Seo et al. 2017, "BiDAF", eq. 1)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scored import Score, check_equal_lengths
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class TrilinearKeys(NamedTuple):
    """The terms of the trilinear score that depend on the regions."""

    vectors: Tensor
    """(B, L, A) k."""
    products: Tensor
    """(B, 1, L) w₁ · k."""


class TrilinearScore(Score):
    """e_i = w · [k_i; q; k_i ∘ q] = w₁ · k_i + w₂ · q + w₃ · (k_i ∘ q), where w has 3A numbers.

    Keys and queries are not projected. w₂ · q is the same for all regions. It cancels in a softmax over the regions,
    but not in the affinity of a co-attention.

    Raises:
        UserError: when built, regions and queries have different lengths.
    """

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        check_equal_lengths(self, region_size, query_sizes)
        self.energy = nn.Linear(3 * region_size, 1, bias=False)

    def keys(self, regions: Regions) -> TrilinearKeys:
        w1, _, _ = self.energy.weight.chunk(3, -1)
        return TrilinearKeys(regions.vectors, (regions.vectors @ w1.mT).mT)

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        keys: TrilinearKeys = memory.keys
        _, w2, w3 = self.energy.weight.chunk(3, -1)
        queries = query.hidden
        return (queries * w3).to(keys.vectors.dtype) @ keys.vectors.mT + queries @ w2.mT + keys.products
