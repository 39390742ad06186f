"""Concatenation score: e_i = w · [h; a_i], without a nonlinearity."""

from __future__ import annotations

from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.scores.learned_query import LearnedQueryScore
from caption.core.tensor_tree import TensorTree


class ConcatenationScore(LearnedQueryScore):
    """e_i = w · [h; a_i] = w₁ · h + w₂ · a_i, as surveys list it.

    It is degenerate under a softmax: w₁ · h is the same for all regions and cancels, so the weights are those of
    `LearnedQueryScore`, the same at every word. With weights normalised one by one (`Sigmoid`), the query raises or
    lowers all weights together. Their order never depends on the query, even if an increasing function follows (Brody
    et al. 2022, "How Attentive are Graph Attention Networks?", "static attention"). With a tanh between W [h; a_i] and
    w it is `AdditiveScore`.
    """

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        super().build(region_size, query_sizes)  # w₂
        self.state = nn.Linear(query_sizes.hidden, 1, bias=False)  # w₁

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return super().forward(query, memory, state) + self.state(query.hidden)
