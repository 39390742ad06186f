"""Location-sensitive score (Chorowski et al. 2015, eqs. 8 and 9): the previous weights are another input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.options import odd_kernel
from caption.attention.scored import Score
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class LocationSensitiveScore(Score):
    """e_i = v · tanh(U a_i + W h + V f_i + b), with f = F * α[t-1]: filters F over the previous step's map.

    The convolution is two-dimensional, over the grid. Before the first word the map is 0. With `cumulative`, the sum of
    all maps so far is a second input. Scores are bounded by the learned v, as in `AdditiveScore`.

    Args:
        size: width of the comparison.
        filters: number of filters F.
        kernel: width and height of the filters in cells, an odd number.
        cumulative: whether Σ α[<t] is a second input.

    Raises:
        UserError: the kernel is even.
    """

    def __init__(self, size: int = 512, filters: int = 16, kernel: int = 5, cumulative: bool = False) -> None:
        super().__init__()
        odd_kernel(self, kernel)
        self.size = size
        self.filters = filters
        self.kernel = kernel
        self.cumulative = cumulative

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.region = nn.Linear(region_size, self.size)
        self.query = nn.Linear(query_sizes.hidden, self.size, bias=False)
        inputs = 2 if self.cumulative else 1
        self.location = nn.Conv2d(inputs, self.filters, self.kernel, padding=self.kernel // 2, bias=False)
        self.from_location = nn.Linear(self.filters, self.size, bias=False)
        self.energy = nn.Linear(self.size, 1, bias=False)

    def keys(self, regions: Regions) -> Tensor:
        """(B, L, A) U a_i + b."""
        return self.region(regions.vectors)

    def start(self, memory: GridMemory, hypotheses: int) -> Tensor:
        """(B, K, inputs, L) maps of 0."""
        images, regions = memory.values.shape[:2]
        inputs = 2 if self.cumulative else 1
        return memory.values.new_zeros(images, hypotheses, inputs, regions)

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        images, hypotheses, inputs, _ = state.shape
        maps = state.reshape(-1, inputs, *memory.grid).to(memory.keys.dtype)
        features = self.location(maps).flatten(2).mT.unflatten(0, (images, hypotheses))  # (B, K, L, F)
        joined = memory.keys[:, None] + self.query(query.hidden)[:, :, None] + self.from_location(features)
        return self.energy(joined.tanh()).squeeze(-1)

    def carry(self, weights: Tensor, state: TensorTree) -> Tensor:
        if not self.cumulative:
            return weights[:, :, None]
        return torch.stack((weights, state[:, :, 1] + weights), 2)
