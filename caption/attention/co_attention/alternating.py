"""Alternating co-attention (Lu et al. 2016, section 3.3): the words, then the regions, then the words again."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory, Query
from caption.attention.co_attention.base import CoAttention, attended_words
from caption.attention.co_attention.words import WordFeatures
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.scored import Score, score_copies, score_each
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class AlternatingKeys(NamedTuple):
    """The regions' keys, and the score's projections of them."""

    vectors: Tensor
    """(B, L, A)."""
    compared: TensorTree
    """The keys of the score, tensors (B, ...)."""


class AlternatingCoAttention(CoAttention):
    """One side after the other: s = attention over the words with a learned query c⁰, v = attention over the regions
    with the query s, q̂ = attention over the words with the query v.

    Each e = score(query, k), and each of the three attentions has its own score. v is the mean of the regions' keys
    under the map. c⁰ is 0 before training, which is the missing guidance of Lu et al. 2016 (eq. 6).

    Args:
        words: the features of the words so far.
        score: how a query and a key are compared; additive in Lu et al. 2016.

    Raises:
        UserError: when built with a score that keeps a state.
    """

    def __init__(self, words: WordFeatures, score: Score) -> None:
        super().__init__(words)
        self.summary_score, self.region_score, self.word_score = score_copies(score, 3)

    def create_comparison(self, size: int) -> None:
        super().create_comparison(size)
        self.first_query = nn.Parameter(torch.zeros(size))  # c⁰

    def prepare(self, keys: Regions) -> AlternatingKeys:
        return AlternatingKeys(keys.vectors, self.region_score.keys(keys))

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        keys: AlternatingKeys = memory.keys
        first = self.first_query.to(words.dtype).expand(*words.shape[:2], -1)
        summary = attended_words(score_each(self.summary_score, Query(first), words), words)
        scores = self.region_score(Query(summary), memory._replace(keys=keys.compared))
        regions = weighted_sum(hide_masked(scores, memory.mask).softmax(-1), keys.vectors)
        return scores, attended_words(score_each(self.word_score, Query(regions), words), words)
