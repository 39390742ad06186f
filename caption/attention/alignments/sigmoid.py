"""Sigmoid weights, normalised one by one: each region is read or not, independently of the others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scored import Alignment
from caption.core.regions import WeightProperties
from caption.core.tensor_tree import TensorTree


class Sigmoid(Alignment):
    """α_i = σ(e_i + b), each between 0 and 1, with any sum from 0 to L.

    The offset b is learned. The scores of this package leave it out, because it would cancel in a softmax. Here it
    determines the sum of the weights. Source: Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid
    Self-Attention", who set b = −log L so that the weights of scores near 0 sum to about 1, as in a softmax.

    Args:
        initial_offset: b before training; None = no b.
    """

    properties = WeightProperties(sums_to_one=False)

    def __init__(self, initial_offset: float | None = 0.0) -> None:
        super().__init__()
        self.initial_offset = initial_offset

    def build(self, query_sizes: QuerySizes) -> None:
        if self.initial_offset is not None:
            self.offset = nn.Parameter(torch.tensor(float(self.initial_offset)))

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return (scores if self.initial_offset is None else scores + self.offset).sigmoid()
