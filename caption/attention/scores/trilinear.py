"""Trilinear score: e_i = w · [k_i; q; k_i ∘ q], element by element (Seo et al. 2017, "BiDAF", eq. 1)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scored import Score, check_equal_lengths
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class TrilinearKeys(NamedTuple):
    """Regions, as the trilinear score reads them."""

    vectors: Tensor
    """(B, L, A) k."""
    own: Tensor
    """(B, 1, L) the region's own part w₁ · k."""


class TrilinearScore(Score):
    """e_i = w · [k_i; q; k_i ∘ q] = w₁ · k_i + w₂ · q + w₃ · (k_i ∘ q), where w has 3A numbers.

    Keys and queries are compared as they are. w₂ · q is the same for all regions: a softmax over the regions cancels
    it, the affinity of a co-attention does not.

    Raises:
        UserError: when built, regions and queries have different lengths.
    """

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        check_equal_lengths(self, region_size, query_sizes)
        self.energy = nn.Linear(3 * region_size, 1, bias=False)

    def keys(self, regions: Regions) -> TrilinearKeys:
        of_region, _, _ = self.energy.weight.chunk(3, -1)
        return TrilinearKeys(regions.vectors, (regions.vectors @ of_region.mT).mT)

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        keys: TrilinearKeys = memory.keys
        _, of_query, of_product = self.energy.weight.chunk(3, -1)
        queries = query.hidden
        return (
            (queries * of_product).to(keys.vectors.dtype) @ keys.vectors.mT + queries @ of_query.mT + keys.own
        )
