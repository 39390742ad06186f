"""Additive score (Bahdanau et al. 2015, the f_att of Xu et al. 2015): e_i = v · tanh(U a_i + W h + b)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.options import at_least_one
from caption.attention.scored import Score
from caption.core.errors import UserError
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree

Activation = Literal["tanh", "relu"]


class AdditiveScore(Score):
    """e_i = v · tanh(U a_i + W h + b): a small network that compares each region with the query.

    With tanh, scores are between −‖v‖₁ and ‖v‖₁, so no weight exceeds 1 / (1 + (L − 1) e^(−2‖v‖₁)). v is learned, so
    this bound changes in training.

    Without the nonlinearity, the term of h would be the same for every region and cancel in the softmax, so the weights
    would not depend on h.

    Args:
        size: width A of the comparison.
        activation: the nonlinearity; "tanh" as in the paper, or "relu".
        layers: affine layers on the regions. Each layer after the first is followed by the activation, as in the
            authors' code: with two layers, U a_i + b becomes tanh(U_1 (U a_i + b) + b_1).
        previous_word: whether the query also contains the previous word: W h + W_y Ey. In the paper, h[t-1], the query
            of word t, has read only the words before y[t-1]. W_y is 0 before training. Source: Sennrich et al. 2017,
            "Nematus", section 2, where a further recurrent layer reads y[t-1] for the query.

    Raises:
        UserError: the activation is unknown.
        UserError: `layers` is below 1; when built, `previous_word` in a decoder that does not pass words to its
            attention.
    """

    def __init__(
        self, size: int = 512, activation: Activation = "tanh", layers: int = 1, previous_word: bool = False
    ) -> None:
        super().__init__()
        at_least_one(self, layers=layers)
        self.size = size
        self.activation = activation
        self.nonlinearity = {"tanh": torch.tanh, "relu": torch.relu}[activation]
        self.layers = layers
        self.previous_word = previous_word

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.region = nn.Linear(region_size, self.size)
        self.deeper = nn.ModuleList(nn.Linear(self.size, self.size) for _ in range(self.layers - 1))
        self.query = nn.Linear(query_sizes.hidden, self.size, bias=False)  # the bias b is in `region`
        self.energy = nn.Linear(self.size, 1, bias=False)  # a bias here would cancel in the softmax
        if self.previous_word:
            if not query_sizes.word:
                raise UserError(
                    "previous_word of AdditiveScore needs a decoder that passes the previous word to its attention, "
                    "such as ShowAttendAndTellDecoder"
                )
            self.word = nn.Linear(query_sizes.word, self.size, bias=False)
            nn.init.zeros_(
                self.word.weight
            )  # so that adding it to a trained model does not change the scores

    def keys(self, regions: Regions) -> Tensor:
        """(B, L, A) U a_i + b."""
        keys = self.region(regions.vectors)
        for layer in self.deeper:
            keys = self.nonlinearity(layer(keys))
        # Under autocast as well, the sums in `forward` have the precision of the regions.
        return keys.to(regions.vectors.dtype)

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        queries = self.query(query.hidden)  # W h
        if self.previous_word:
            queries = queries + self.word(query.word)  # W_y Ey
        sums = memory.keys[:, None] + queries[:, :, None]  # U a_i + W h + b, (B, K, L, A)
        return self.energy(self.nonlinearity(sums)).squeeze(-1)  # v · tanh(U a_i + W h + b)
