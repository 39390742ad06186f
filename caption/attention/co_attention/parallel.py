"""Parallel co-attention (Lu et al. 2016, section 3.3): both sides at once, through their affinity."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory
from caption.attention.co_attention.affinity import AffinityCoAttention
from caption.attention.co_attention.base import attended_words
from caption.attention.maps import weighted_sum
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class ParallelKeys(NamedTuple):
    """The regions' keys in the forms that the affinity and the sums use."""

    compared: TensorTree
    """The keys of the affinity, tensors (B, ...)."""
    mapped: Tensor
    """(B, L, A) W₁ k_i."""


class ParallelCoAttention(AffinityCoAttention):
    """e⁽¹⁾ = w₁ · tanh(W₂ K₂ Aᵀ + W₁ K₁), e⁽²⁾ = w₂ · tanh(W₁ K₁ A + W₂ K₂), softmax of each.

    K₁ are the keys of the regions, K₂ the features of the words, A (L, T) their affinity (Lu et al. 2016, eqs. 3 to 5).
    """

    def create_comparison(self, size: int) -> None:
        super().create_comparison(size)
        self.map_regions = nn.Linear(size, size, bias=False)  # W₁
        self.map_words = nn.Linear(size, size, bias=False)  # W₂
        self.region_energy = nn.Linear(size, 1, bias=False)  # w₁
        self.word_energy = nn.Linear(size, 1, bias=False)  # w₂

    def prepare(self, keys: Regions) -> ParallelKeys:
        return ParallelKeys(self.affinity.keys(keys), self.map_regions(keys.vectors))

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        keys: ParallelKeys = memory.keys
        affinities = self.affinities(words, memory._replace(keys=keys.compared), masked=0.0)  # Aᵀ
        regions, mapped = keys.mapped[:, None], self.map_words(words)  # W₁ K₁, W₂ K₂
        region_scores = self.region_energy((weighted_sum(affinities.mT, mapped) + regions).tanh()).squeeze(-1)
        word_scores = self.word_energy((weighted_sum(affinities, regions) + mapped).tanh()).squeeze(-1)
        return region_scores, attended_words(word_scores, words)


class MaxCoAttention(AffinityCoAttention):
    """The maximum form: e⁽¹⁾_i = max_j A_ij, e⁽²⁾_j = max_i A_ij. A region's score is its highest affinity with
    a word, and a word's score its highest affinity with a region.

    Lu et al. 2016 (section 3.3) mention it as the alternative to the parallel form.
    """

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        affinities = self.affinities(words, memory, masked=-torch.inf)
        return affinities.amax(-2), attended_words(affinities.amax(-1), words)
