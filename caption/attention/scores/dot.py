"""Dot-product scores: e_i = q · k_i (Luong et al. 2015, section 3.1), or divided by √A (Vaswani et al. 2017, eq. 1)."""

from __future__ import annotations

from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scored import Score
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class DotScore(Score):
    """e_i = q · k_i, with the key k_i = W a_i + b and the state itself as the query, q = h."""

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.key = nn.Linear(region_size, query_sizes.hidden)

    def keys(self, regions: Regions) -> Tensor:
        """(B, L, A) W a_i + b, as long as the query."""
        return self.key(regions.vectors)

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return query.hidden @ memory.keys.mT


class ScaledDotScore(DotScore):
    """e_i = q · k_i / √A, with the key k_i = W_k a_i + b and the query q = W_q h.

    The scale keeps the scores' variance near 1, so that the softmax does not start saturated.

    Args:
        size: A, the length of keys and queries.
    """

    def __init__(self, size: int = 512) -> None:
        super().__init__()
        self.size = size

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.key = nn.Linear(region_size, self.size)
        self.query = nn.Linear(query_sizes.hidden, self.size)

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return self.query(query.hidden) @ memory.keys.mT / self.size**0.5
