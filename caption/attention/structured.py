"""Structured self-attention (Lin et al. 2017): S learned queries, and a penalty on their similarity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import hide_masked, overlap, weighted_sum
from caption.core.regions import Views
from caption.core.tensor_tree import TensorTree

Diverse = Literal["maps", "queries"]


class QueryMaps(NamedTuple):
    """The maps of S queries."""

    queries: Tensor
    """(B, K, S, L)."""


class StructuredAttention(Attention):
    """A = softmax(Q tanh(W_1 aᵀ)) (eq. 6), z = W_o vec(A a): S maps per image, the same at every word.

    The rows of Q, the paper's W_2, are the learned queries. A penalty makes them differ; the loss term
    `caption.objectives.AttentionPenalty` adds it. The paper's penalty is on the maps, ‖A Aᵀ − I‖²_F (eq. 8): each query
    attends to few regions, and no two to the same. A penalty on the queries, ‖Q Qᵀ − I‖²_F, makes them orthogonal and
    of length 1, but does not constrain the maps.

    Args:
        queries: S.
        size: width of the comparison.
        diverse: the matrix of the penalty: "maps" (A) or "queries" (Q).

    Raises:
        UserError: `diverse` is another string.
    """

    map_views = {"queries": 0}

    def __init__(self, queries: int = 4, size: int = 256, diverse: Diverse = "maps") -> None:
        super().__init__()
        self.queries = queries
        self.size = size
        self.diverse = diverse

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.region = nn.Linear(region_sizes[0], self.size, bias=False)
        self.energy = nn.Linear(self.size, self.queries, bias=False)
        self.output = nn.Linear(self.queries * region_sizes[0], region_sizes[0])

    def memory(self, views: Views) -> GridMemory:
        """The keys are the weights (B, S, L), which depend on the image alone."""
        scores = self.energy(self.region(views[0].vectors).tanh()).mT
        return GridMemory.of(views[0], hide_masked(scores, views[0].mask).softmax(-1))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        return WeighOutput(QueryMaps(memory.keys[:, None].expand(-1, query.hidden.shape[1], -1, -1)))

    def context(self, maps: QueryMaps, query: Query, memory: GridMemory) -> Tensor:
        vectors = weighted_sum(maps.queries, memory.values[:, None])  # (B, K, S, D)
        return self.output(vectors.flatten(2))

    def penalty(self, maps: Mapping[str, Tensor]) -> Tensor:
        """‖A Aᵀ − I‖²_F, the mean over all steps, or ‖Q Qᵀ − I‖²_F."""
        rows = maps["queries"] if self.diverse == "maps" else self.energy.weight  # (..., S, L) or (S, A)
        return overlap(rows)
