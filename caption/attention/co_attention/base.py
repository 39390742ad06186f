"""The base class of co-attentions: keys of the regions, features of the words so far, and the reading of both."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.co_attention.words import WordFeatures, WordState
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.scored import Score, build_stateless
from caption.core.regions import Regions, Views
from caption.core.tensor_tree import TensorTree


class CoMaps(NamedTuple):
    """The weights of the regions and the attended words."""

    regions: Tensor
    """(B, K, L) weights of the regions."""
    words: Tensor
    """(B, K, A) q̂, the attended words; not a map over regions."""


class CoAttention(Attention):
    """Base class of the co-attentions: z = [Σ_i α_i a_i; q̂], the attended regions and the attended words.

    The regions have keys k_i = W a_i + b of the same length as the words' features, which are their own keys. The words
    so far are kept in the mechanism's state. Only the map of the regions is over the image; the maps also contain q̂.

    Args:
        words: the features of the words so far.
    """

    map_views = {"regions": 0}

    def __init__(self, words: WordFeatures) -> None:
        super().__init__()
        self.words = words

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        size = self.words.size
        self.words.build(query_sizes.word)
        self.context_size = region_sizes[0] + size
        self.key = nn.Linear(region_sizes[0], size)
        self.create_comparison(size)

    def create_comparison(self, size: int) -> None:
        """Create the weights that compare keys and features, both of length A = `size`; by default, build the
        scores."""
        for score in self.children():
            if isinstance(score, Score):
                build_stateless(self, score, size, QuerySizes(size))

    def memory(self, views: Views) -> GridMemory:
        regions = views[0]
        return GridMemory.of(regions, self.prepare(regions._replace(vectors=self.key(regions.vectors))))

    def prepare(self, keys: Regions) -> TensorTree:
        """Keys (B, L, A) of the regions -> tensors (B, ...) for the comparison, computed once per image."""
        raise NotImplementedError

    def start(self, memory: GridMemory, hypotheses: int) -> WordState:
        return self.words.start(memory.values, hypotheses)

    def weigh(self, query: Query, memory: GridMemory, state: WordState | None) -> WeighOutput:
        state = self.words(query, state or self.start(memory, query.hidden.shape[1]))
        scores, attended = self.attend(state.features, memory)
        return WeighOutput(CoMaps(hide_masked(scores, memory.mask).softmax(-1), attended), state)

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        """Words so far (B, K, T, A) -> scores of the regions (B, K, L), attended words (B, K, A)."""
        raise NotImplementedError

    def context(self, maps: CoMaps, query: Query, memory: GridMemory) -> Tensor:
        regions = weighted_sum(maps.regions, memory.values)
        return torch.cat((regions, maps.words.to(regions.dtype)), -1)


def attended_words(scores: Tensor, words: Tensor) -> Tensor:
    """(B, K, A), the mean of words (B, K, T, A) under the softmax of their scores (B, K, T)."""
    return weighted_sum(scores.softmax(-1)[..., None, :], words).squeeze(-2)
