"""Dot-product scores: e_i = q · k_i (Luong et al. 2015, section 3.1), or divided by √A (Vaswani et al. 2017, eq. 1)."""

from __future__ import annotations

from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scored import Score, check_equal_lengths
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class DotScore(Score):
    """e_i = q · k_i, with the key k_i = W a_i + b and the state itself as the query, q = h.

    Args:
        project: whether there are W and b; without them, the regions themselves are the keys, k_i = a_i, as published.

    Raises:
        UserError: when built without a projection, regions and queries have different lengths.
    """

    def __init__(self, project: bool = True) -> None:
        super().__init__()
        self.project = project

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        if not self.project:
            check_equal_lengths(self, region_size, query_sizes)
        self.key = nn.Linear(region_size, query_sizes.hidden) if self.project else nn.Identity()

    def keys(self, regions: Regions) -> Tensor:
        """(B, L, A) W a_i + b, or a_i, as long as the query."""
        keys: Tensor = self.key(regions.vectors)
        return keys

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return query.hidden @ memory.keys.mT


class ScaledDotScore(DotScore):
    """e_i = q · k_i / √A, with the key k_i = W_k a_i + b and the query q = W_q h + b_q.

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
