"""Compositional de-attention (Tay et al. 2019): weights that may add a region, leave it out, or subtract it."""

from __future__ import annotations

import torch
from torch import nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.regions import Views, WeightProperties
from caption.tensor_tree import TensorTree


class CompositionalDeAttention(Attention):
    """α_i = tanh(q · k_i / √A) · 2σ(−‖q − k_i‖₁ / √A), z = Σ_i α_i a_i.

    The tanh decides between adding, ignoring and subtracting, the distance how much. Weights lie between -1 and 1 and
    do not sum to one; a heatmap shows their sign. The factor 2 lets a weight of a key that equals the query reach the
    tanh's, since σ of what is never positive stays below ½. The paper names this scaling beside its centring of the
    distances.

    Args:
        size: A, the length of keys and queries.
    """

    properties = WeightProperties(sums_to_one=False, signed=True)

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.size = size

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.key = nn.Linear(region_sizes[0], self.size)
        self.query = nn.Linear(query_sizes.hidden, self.size)

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.key(views[0].vectors))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        queries = self.query(query.hidden)
        affinity = queries @ memory.keys.mT
        distance = torch.cdist(queries, memory.keys.to(queries.dtype), p=1)
        scale = self.size**0.5
        weights = (affinity / scale).tanh() * 2 * (-distance / scale).sigmoid()
        if memory.mask is not None:
            weights = weights.masked_fill(~memory.mask[:, None], 0.0)
        return WeighOutput(weights)
