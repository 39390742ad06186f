"""The visual sentinel (Lu et al. 2017, section 2.3): an alternative to attending to the image."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.scored import Score, build_stateless, score_each
from caption.core.errors import UserError
from caption.core.regions import Views, WeightProperties
from caption.core.tensor_tree import TensorTree


class SentinelMaps(NamedTuple):
    """The weight of each region and of the sentinel."""

    regions: Tensor
    """(B, K, L)."""
    sentinel: Tensor
    """(B, K, 1) the paper's β[t]; the regions' shares sum to 1 − β[t]."""


class SentinelAttention(Attention):
    """The sentinel is scored as one more region: α̂ = softmax([f_att(a, h); f_att(W_k s, h)]), ĉ = Σ_i α̂_i a_i +
    β W_v s, with s = σ(W_x x + W_h h[t-1]) ∘ tanh(c[t]).

    s is computed from the LSTM's own memory. Words that do not need the image read s instead of a region. f_att is the
    same for both: in the paper's z = w · tanh(W a + W_g h), the sentinel has its own W_s, and shares w and W_g (eq. 12;
    likewise in the authors' code, github.com/jiasenlu/AdaptiveAttention). A change that shifts all scores therefore
    shifts the sentinel's as well. W_k s and W_v s have the regions' length; in the paper regions have the length of h,
    and W_v s is s. x is the word's vector; in the paper it also contains the mean region. For decoders that attend
    after their update, such as `caption.decoders.AdaptiveDecoder`: it needs h[t], c[t] and h[t-1].

    Args:
        score: f_att; additive in the paper.
        dropout: probability with which a training step has no sentinel, so that its word reads only the regions. With
            0, as in the paper, a sentinel that has nearly all the weight of a word leaves no gradient to the regions,
            and the word never learns to attend to them: on Shapes relations, and many shapes
            (docs/results/questions.md).

    Raises:
        UserError: the dropout is not a probability below 1. When built with a score that keeps a state.
    """

    map_views = {"regions": 0}
    properties = WeightProperties(sentinel=True)

    def __init__(self, score: Score, dropout: float = 0.0) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise UserError(
                f"dropout {dropout} of SentinelAttention must be a probability, at least 0 and below 1"
            )
        self.score = score
        self.dropout = dropout

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        build_stateless(self, self.score, region_sizes[0], query_sizes)
        hidden = query_sizes.hidden
        self.gate_from_word = nn.Linear(query_sizes.word, hidden)
        self.gate_from_hidden = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, region_sizes[0])
        self.value = nn.Linear(hidden, region_sizes[0])

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.score.keys(views[0]))

    def _sentinel(self, query: Query) -> Tensor:
        """(B, K, H) s[t]."""
        if query.previous is None or query.cell is None or query.word is None:
            raise UserError(
                "SentinelAttention needs the state before and after the LSTM's update: take a decoder that attends "
                "after the update, such as caption.decoders.AdaptiveDecoder"
            )
        gate = self.gate_from_word(query.word) + self.gate_from_hidden(query.previous)
        return gate.sigmoid() * query.cell.tanh()

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        scores = hide_masked(self.score(query, memory), memory.mask)
        sentinel_score = score_each(self.score, query, self.key(self._sentinel(query))[:, :, None])
        if self.training and self.dropout:
            sentinel_score = sentinel_score.masked_fill(
                torch.rand_like(sentinel_score) < self.dropout, -torch.inf
            )
        weights = torch.cat((scores, sentinel_score.to(scores.dtype)), -1).softmax(-1)
        return WeighOutput(SentinelMaps(weights[..., :-1], weights[..., -1:]))

    def context(self, maps: SentinelMaps, query: Query, memory: GridMemory) -> Tensor:
        context = weighted_sum(maps.regions, memory.values)
        return context + maps.sentinel * self.value(self._sentinel(query))
