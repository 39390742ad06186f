"""The visual sentinel (Lu et al. 2017, section 2.3): an alternative to attending to the image."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, ReadOutput, WeighOutput
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.scored import Score, build_stateless
from caption.errors import UserError
from caption.kernels.linear import Linear
from caption.regions import Views, WeightProperties
from caption.tensor_tree import TensorTree


class SentinelMaps(NamedTuple):
    """The weight of each region and of the sentinel."""

    regions: Tensor
    """(B, K, L)."""
    sentinel: Tensor
    """(B, K, 1) the paper's β[t]; the regions' shares sum to 1 − β[t]."""


class SentinelAttention(Attention):
    """α̂ = softmax([e; w · tanh(W_s s + W_g h)]), ĉ = Σ_i α̂_i a_i + β W_v s, with the sentinel s = σ(W_x x + W_h h[t-1])
    ∘ tanh(c[t]).

    s is what the LSTM already knows. Words that need no look read it instead of a region. W_v s, of the regions'
    length, is what is read, and x is the word's vector; in the paper x holds the mean region as well, and regions have
    the length of h. For decoders that attend after their update, such as `caption.decoders.AdaptiveDecoder`: it needs
    h[t], c[t] and h[t-1].

    Args:
        score: f_att for the regions; its scale should match the sentinel's score, so use `AdditiveScore`, as the paper
            does.
        size: width of the sentinel's comparison.
    """

    map_views = {"regions": 0}
    properties = WeightProperties(sentinel=True)

    def __init__(self, score: Score, size: int = 256) -> None:
        super().__init__()
        self.score = score
        self.size = size

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        build_stateless(self, self.score, region_sizes[0], query_sizes)
        hidden = query_sizes.hidden
        self.gate_from_word = Linear(query_sizes.word, hidden)
        self.gate_from_hidden = Linear(hidden, hidden, bias=False)
        self.value = Linear(hidden, region_sizes[0])
        self.from_sentinel = Linear(hidden, self.size)
        self.from_query = Linear(hidden, self.size, bias=False)
        self.energy = Linear(self.size, 1, bias=False)

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.score.keys(views[0]))

    def _sentinel(self, query: Query) -> Tensor:
        """(B, K, H) s[t]."""
        if query.previous is None or query.cell is None or query.word is None:
            raise UserError(
                "SentinelAttention needs the state before and after the LSTM's update: take a decoder that attends "
                "after it, such as caption.decoders.AdaptiveDecoder"
            )
        gate = self.gate_from_word(query.word) + self.gate_from_hidden(query.previous)
        return gate.sigmoid() * query.cell.tanh()

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        scores = hide_masked(self.score(query, memory), memory.mask)
        own = self.energy((self.from_sentinel(self._sentinel(query)) + self.from_query(query.hidden)).tanh())
        weights = torch.cat((scores, own.to(scores.dtype)), -1).softmax(-1)
        return WeighOutput(SentinelMaps(weights[..., :-1], weights[..., -1:]))

    def read(
        self, maps: SentinelMaps, query: Query, memory: GridMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        context = weighted_sum(maps.regions, memory.values)
        return ReadOutput(context + maps.sentinel * self.value(self._sentinel(query)))
