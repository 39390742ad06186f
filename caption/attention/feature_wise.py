"""Multi-dimensional attention (Shen et al. 2018, section 3.1): a weight for each region and feature."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import hide_masked
from caption.core.regions import Views
from caption.core.tensor_tree import TensorTree


class FeatureMaps(NamedTuple):
    """A map for each feature."""

    features: Tensor
    """(B, K, D, L): each feature has a distribution over the regions."""


class FeatureWiseAttention(Attention):
    """z_d = Σ_i α_d,i a_i,d with α_d = softmax_i(e_d), e_i = W tanh(U a_i + V h + b).

    Each feature of the context has its own distribution over the regions. A step keeps D maps, which takes D times the
    memory of one map: use a refiner with a small size.

    Args:
        size: width of the comparison.
    """

    map_views = {"features": 0}

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.size = size

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.region = nn.Linear(region_sizes[0], self.size)
        self.query = nn.Linear(query_sizes.hidden, self.size, bias=False)
        self.energy = nn.Linear(self.size, region_sizes[0], bias=False)

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.region(views[0].vectors))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        pairs = (memory.keys[:, None] + self.query(query.hidden)[:, :, None]).tanh()
        scores = hide_masked(self.energy(pairs).mT, memory.mask)  # (B, K, D, L)
        return WeighOutput(FeatureMaps(scores.softmax(-1)))

    def context(self, maps: FeatureMaps, query: Query, memory: GridMemory) -> Tensor:
        return torch.einsum("bkdl,bld->bkd", maps.features.to(memory.values.dtype), memory.values)
