"""Feed-forward attention (Raffel and Ellis 2015): a learned query, the same for every word and image."""

from __future__ import annotations

from torch import Tensor

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scored import Score
from caption.kernels.linear import Linear
from caption.regions import Regions
from caption.tensor_tree import TensorTree


class LearnedQueryScore(Score):
    """e_i = q · a_i with a learned query q: feed-forward attention of one layer.

    The weights do not depend on the decoder's state, so they are the same at every word. They measure a region's
    overall relevance. (The paper's own network is tanh(w · a_i + b), which bounds the scores.)
    """

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.query = Linear(region_size, 1, bias=False)

    def keys(self, regions: Regions) -> Tensor:
        """(B, 1, L) the scores themselves, which depend only on the image."""
        return self.query(regions.vectors).mT

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return memory.keys.expand(-1, query.hidden.shape[1], -1)


class FeedForwardScore(LearnedQueryScore):
    """e_i = q · tanh(W a_i + b): a learned query behind another layer, feed-forward attention of two layers.

    Scores are bounded as those of `AdditiveScore`, by the learned q.

    Args:
        size: width A.
    """

    def __init__(self, size: int = 512) -> None:
        super().__init__()
        self.size = size

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.region = Linear(region_size, self.size)
        self.query = Linear(self.size, 1, bias=False)

    def keys(self, regions: Regions) -> Tensor:
        """(B, 1, L) the scores themselves."""
        return self.query(self.region(regions.vectors).tanh()).mT
