"""Feed-forward attention (Raffel and Ellis 2015): a learned query, the same for every word and image."""

from __future__ import annotations

from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scored import Score
from caption.regions import Regions
from caption.tensor_tree import TensorTree


class FeedForwardScore(Score):
    """e_i = v · tanh(W a_i + b): what a region says for itself. v is the learned query. (The paper's own network has
    one layer, tanh(w · a_i + b).)

    The weights do not depend on the decoder's state, so they are the same at every word. They measure a region's
    overall relevance.

    Args:
        size: width A.
    """

    def __init__(self, size: int = 512) -> None:
        super().__init__()
        self.size = size

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.region = nn.Linear(region_size, self.size)
        self.energy = nn.Linear(self.size, 1, bias=False)

    def keys(self, regions: Regions) -> Tensor:
        """(B, 1, L) the scores themselves, which depend only on the image."""
        return self.energy(self.region(regions.vectors).tanh()).mT

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return memory.keys.expand(-1, query.hidden.shape[1], -1)
