"""Multi-dimensional attention (Shen et al. 2018, section 3.1): a weight for each region and feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, Query, QuerySizes, Reading, Weighed, hide_masked, one_view
from caption.attention.scored import ScoredMemory
from caption.regions import Views
from caption.tensor_tree import TensorTree


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

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.size = size

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        one_view(self, region_sizes)
        self.context_size = region_sizes[0]
        self.region = nn.Linear(region_sizes[0], self.size)
        self.query = nn.Linear(query_sizes.hidden, self.size, bias=False)
        self.energy = nn.Linear(self.size, region_sizes[0], bias=False)

    def project(self, views: Views) -> ScoredMemory:
        one_view(self, views)
        return ScoredMemory.of(views[0], self.region(views[0].vectors))

    def weigh(self, query: Query, memory: ScoredMemory, state: TensorTree) -> Weighed:
        pairs = (memory.keys[:, None] + self.query(query.hidden)[:, :, None]).tanh()
        scores = self.energy(pairs).mT  # (B, K, D, L)
        scores = hide_masked(scores, memory.mask)
        return Weighed(FeatureMaps(scores.softmax(-1)))

    def read(
        self, maps: FeatureMaps, query: Query, memory: ScoredMemory, weighed: Weighed | None = None
    ) -> Reading:
        return Reading(torch.einsum("bkdl,bld->bkd", maps.features.to(memory.values.dtype), memory.values))

    def summary(self, maps: FeatureMaps) -> Tensor:
        return maps.features.mean(2)

    def grids(self, views: Sequence[tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
        return {"features": views[0]}
