"""MLP score: e_i = w · f_n(… f_1(W [h; a_i] + b)), any number of layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scored import Score
from caption.core.errors import UserError
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class MLPScore(Score):
    """e_i = w · ReLU(W_n … ReLU(W_1 [h; a_i] + b_1) …): the additive score with more layers on each pair.

    The first layer's product with the regions is computed once per image. The later layers need memory for every pair
    of query and region.

    Args:
        sizes: widths of the hidden layers, one or more.

    Raises:
        UserError: `sizes` is empty, or a width is below 1.
    """

    def __init__(self, sizes: Sequence[int] = (256, 128)) -> None:
        super().__init__()
        if not sizes or min(sizes) < 1:
            raise UserError(f"sizes {list(sizes)} of MLPScore must be one or more widths, each at least 1")
        self.sizes = list(sizes)

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.region = nn.Linear(region_size, self.sizes[0])
        self.query = nn.Linear(query_sizes.hidden, self.sizes[0], bias=False)  # the bias is in `region`
        layers: list[nn.Module] = [nn.ReLU()]
        for inputs, outputs in pairwise(self.sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(self.sizes[-1], 1, bias=False))

    def keys(self, regions: Regions) -> Tensor:
        """(B, L, first size) the first layer's product with the regions, and its bias."""
        return self.region(regions.vectors)

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        pairs = memory.keys[:, None] + self.query(query.hidden)[:, :, None]
        return self.layers(pairs).squeeze(-1)
