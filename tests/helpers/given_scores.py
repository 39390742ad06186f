"""A score whose values a test sets, for tests of alignments."""

from __future__ import annotations

from helpers.tiny_views import one_row
from torch import Tensor

from caption.attention import Attention, AttentionOutput, GridMemory, Query, QuerySizes, Score
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class GivenScores(Score):
    """The scores (B, K, L) are the query's hidden state."""

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        pass

    def keys(self, regions: Regions) -> Tensor:
        return regions.vectors

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return query.hidden.clone()


def attend(
    attention: Attention, hidden: Tensor, vectors: Tensor, mask: Tensor | None = None
) -> AttentionOutput:
    """The first step of queries (B, K, H) on regions (B, L, D)."""
    memory = attention.project(one_row(vectors, mask))
    return attention(Query(hidden), memory, attention.start(memory, hidden.shape[1]))
