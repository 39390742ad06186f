"""General scores: e_i = a_iᵀ W h (Luong et al. 2015), with a bias (Sordoni et al. 2016), with an activation (Ma et
al. 2017)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.options import above_zero
from caption.attention.scored import Score
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree

GeneralActivation = Literal["tanh", "relu", "sigmoid"]


class GeneralScore(Score):
    """e_i = a_iᵀ W h, a bilinear score. The keys are the regions themselves.

    `bias` makes it the biased general score a_iᵀ (W h + b).

    Args:
        bias: whether to add b.
    """

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.bias = bias

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.query = nn.Linear(query_sizes.hidden, region_size, bias=self.bias)

    def keys(self, regions: Regions) -> Tensor:
        """(B, L, D) the regions themselves."""
        return regions.vectors

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return self.query(query.hidden).to(memory.keys.dtype) @ memory.keys.mT


class ActivatedGeneralScore(GeneralScore):
    """e_i = f(a_iᵀ W h + b): bilinear, with a bias and an activation around it.

    "tanh" limits the scores to a range of 2, "sigmoid" to 1. Under a softmax no weight then exceeds
    1 / (1 + (L − 1) e^−range): 0.105 and 0.041 with 64 regions. A learned, positive strength s removes this bound:
    e_i = s · f(a_iᵀ W h + b).

    Args:
        activation: f.
        offset: whether to add b.
        strength: initial value of s; None = no s, as published.

    Raises:
        UserError: the activation is unknown.
        UserError: the strength is not above 0.
    """

    def __init__(
        self, activation: GeneralActivation = "tanh", offset: bool = True, strength: float | None = None
    ) -> None:
        super().__init__(bias=False)
        above_zero(self, strength=strength)
        self.activation = activation
        self.has_offset = offset
        self.strength = strength

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        super().build(region_size, query_sizes)
        if self.has_offset:
            self.offset = nn.Parameter(self.query.weight.new_zeros(()))
        if self.strength is not None:
            self.log_strength = nn.Parameter(torch.tensor(float(self.strength)).log())

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        scores = super().forward(query, memory, state)
        if self.has_offset:
            scores = scores + self.offset
        bounded = getattr(scores, self.activation)()
        return bounded if self.strength is None else self.log_strength.exp() * bounded
