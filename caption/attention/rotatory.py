"""Rotatory attention (Zheng and Xia 2018, "Left-Center-Right Separated Neural Network"): a target between two contexts,
each guiding the others."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.co_attention.base import attended_words
from caption.attention.co_attention.words import WordFeatures, WordState
from caption.attention.levels import LevelAttention
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.scored import Score, build_stateless, score_copies, score_each
from caption.kernels.linear import Linear
from caption.regions import Regions, Views


class RotatoryMaps(NamedTuple):
    """The maps of two grids and the attended words."""

    left: Tensor
    """(B, K, L) over the first view."""
    right: Tensor
    """(B, K, L') over the second view."""
    words: Tensor
    """(B, K, 2A) [r_lt; r_rt], the words so far, attended with each of the two results; not a map over regions."""


class RotatoryAttention(LevelAttention):
    """Attention among three inputs: the words so far are the target, and two grids of the image its left and right
    context.

    r_t = mean of the words' features; r_l and r_r = attention over the grids with the query r_t; r_lt and r_rt =
    attention over the words with the queries r_l and r_r. z = [r_l; r_r; r_lt; r_rt]. Each of the four attentions has
    keys k, values v and a score of its own: e_i = score(query, k_i), α = softmax(e), r = Σ α_i v_i. In Zheng and Xia
    2018 the score is `ActivatedGeneralScore`, tanh(kᵀ W q + b).

    Args:
        words: the features of the words so far.
        score: how a query and a key are compared.

    Raises:
        UserError: when built for another number of views than two, or with a score that keeps a state.
    """

    view_count = 2
    map_views = {"left": 0, "right": 1}

    def __init__(self, words: WordFeatures, score: Score) -> None:
        super().__init__()
        self.words = words
        self.left, self.right, self.words_by_left, self.words_by_right = map(
            KeysAndValues, score_copies(score, 4)
        )

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        size = self.words.size
        self.words.build(query_sizes.word)
        parts = (self.left, self.right, self.words_by_left, self.words_by_right)
        for part, inputs in zip(parts, (*region_sizes, size, size), strict=True):
            build_stateless(self, part.score, size, QuerySizes(size))
            part.build(inputs, size)
        self.context_size = 4 * size

    def memory(self, views: Views) -> tuple[GridMemory, ...]:
        left, right = views
        return self.left(left), self.right(right)

    def start(self, memory: tuple[GridMemory, ...], hypotheses: int) -> WordState:
        return self.words.start(memory[0].values, hypotheses)

    def weigh(self, query: Query, memory: tuple[GridMemory, ...], state: WordState | None) -> WeighOutput:
        """The grids are attended with r_t, the mean of the words so far; then the words, with each grid's result."""
        state = self.words(query, state or self.start(memory, query.hidden.shape[1]))
        words = state.features
        target = Query(words.mean(2))  # r_t
        maps, attended = [], []
        for side, of_words, grid in (
            (self.left, self.words_by_left, memory[0]),
            (self.right, self.words_by_right, memory[1]),
        ):
            maps.append(hide_masked(side.score(target, grid), grid.mask).softmax(-1))
            context = weighted_sum(maps[-1], grid.values)  # r_l, r_r
            scores = score_each(of_words.score, Query(context), of_words.key(words))
            attended.append(attended_words(scores, of_words.value(words)))  # r_lt, r_rt
        return WeighOutput(RotatoryMaps(maps[0], maps[1], torch.cat(attended, -1)), state)

    def context(self, maps: RotatoryMaps, query: Query, memory: Any) -> Tensor:
        grids = super().context(maps[:2], query, memory)
        return torch.cat((grids, maps.words.to(grids.dtype)), -1)


class KeysAndValues(nn.Module):
    """One of the four attentions: its keys, values and score.

    Args:
        score: compares a query with a key; built by the owner.
    """

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def build(self, inputs: int, size: int) -> None:
        """Create the projections of vectors of length `inputs` to `size`. Called once."""
        self.key = Linear(inputs, size)
        self.value = Linear(inputs, size)

    def forward(self, regions: Regions) -> GridMemory:
        """The memory of a grid."""
        keys = self.score.keys(regions._replace(vectors=self.key(regions.vectors)))
        return GridMemory(keys, self.value(regions.vectors), regions.mask, regions.grid)
