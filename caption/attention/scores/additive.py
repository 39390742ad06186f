"""Additive score (Bahdanau et al. 2015, the f_att of Xu et al. 2015): e_i = v · tanh(U a_i + W h + b)."""

from __future__ import annotations

from typing import get_args

from torch import Tensor, nn

from caption.attention.base import Query, QuerySizes
from caption.attention.scored import Score, ScoredMemory
from caption.kernels.additive_energies import Activation, additive_energies
from caption.parts import check_choice
from caption.regions import Regions
from caption.tensor_tree import TensorTree


class AdditiveScore(Score):
    """e_i = v · tanh(U a_i + W h + b): a small network that compares each region with the query.

    Without the nonlinearity, the term of h would be the same for every region and cancel in the softmax, so the weights
    would not depend on h.

    Args:
        size: width A of the comparison.
        activation: the nonlinearity; "tanh" as in the paper, or "relu".
        layers: affine layers on the regions. Each layer after the first is followed by the activation, as in the
            authors' code: with two layers, U a_i + b becomes tanh(U_1 (U a_i + b) + b_1).

    Raises:
        ValueError: the activation is unknown, or `layers` is below 1.
    """

    def __init__(self, size: int = 512, activation: Activation = "tanh", layers: int = 1) -> None:
        super().__init__()
        check_choice("activation", activation, get_args(Activation))
        if layers < 1:
            raise ValueError(f"the additive score needs at least one layer on the regions, not {layers}")
        self.size = size
        self.activation = activation
        self.layers = layers

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.region = nn.Linear(region_size, self.size)
        self.deeper = nn.ModuleList(nn.Linear(self.size, self.size) for _ in range(self.layers - 1))
        self.query = nn.Linear(query_sizes.hidden, self.size, bias=False)  # the bias b is in `region`
        self.energy = nn.Linear(self.size, 1, bias=False)  # a bias here would cancel in the softmax

    def keys(self, regions: Regions) -> Tensor:
        """(B, L, A) U a_i + b."""
        keys = self.region(regions.vectors)
        for layer in self.deeper:
            sums = layer(keys)
            keys = sums.tanh_() if self.activation == "tanh" else sums.relu_()
        # Undo autocast's lower precision: the sums k + q need the full one.
        return keys.to(regions.vectors.dtype)

    def forward(self, query: Query, memory: ScoredMemory, state: TensorTree = None) -> Tensor:
        return additive_energies(
            self.query(query.hidden), memory.keys, self.energy.weight[0], self.activation
        )
