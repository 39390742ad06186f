"""Mutual cross-attention (Hou et al. 2019, "Cross Attention Network for Few-shot Classification")."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from caption.attention.base import GridMemory, Query
from caption.attention.co_attention.base import CoAttention, CoMaps, attended_words
from caption.attention.co_attention.words import WordFeatures
from caption.attention.options import above_zero
from caption.core.regions import Views, mean_region


class MutualKeys(NamedTuple):
    """The regions in the forms that the correlation and the reading use."""

    unit: Tensor
    """(B, L, A) keys of length 1; 0 for masked regions."""
    real: Tensor
    """(B, 1, 1) the number of real regions."""
    mean: Tensor
    """(B, 1, D) the mean of the real regions."""


class MutualCrossAttention(CoAttention):
    """Both sides are reweighted by their correlation with the other: α_i = softmax_i(mean_j u_j R_ij / τ), and likewise
    for the words, with the correlations R_ij = cos(k_i, f_j).

    The kernel u, which weighs the correlations, is u_j = W₂ ReLU(W₁ g_j + b₁) + b₂ of the mean correlation g_j =
    mean_i R_ij (the "meta fusion layer"). In the authors' code (github.com/blue-blue272/fewshot-CAN, cam.py) it is one
    network of all g together, with batch normalisation after W₁, and both inputs share it, since they have one fixed
    size. Captions and grids have any size, so here it is a network of each g_j, and each side has its own.

    A reweighted side is read as its mean: z = [mean_i (1 + L α_i) a_i; mean_j (1 + T β_j) f_j] = [ā + Σ α_i a_i; f̄ +
    Σ β_j f_j]. The authors multiply by 1 + α_i; the mean of that would have only a share of 1/L from the attention.

    Args:
        words: the features of the words so far.
        temperature: τ.
        hidden_size: width of W₁.

    Raises:
        UserError: the temperature is not above 0, or the width is below 1.
    """

    def __init__(self, words: WordFeatures, temperature: float = 0.025, hidden_size: int = 8) -> None:
        super().__init__(words)
        above_zero(self, temperature=temperature)
        self.temperature = temperature
        self.hidden_size = hidden_size

    def create_comparison(self, size: int) -> None:
        self.word_kernel, self.region_kernel = (
            nn.Sequential(nn.Linear(1, self.hidden_size), nn.ReLU(), nn.Linear(self.hidden_size, 1))
            for _ in range(2)
        )

    def memory(self, views: Views) -> GridMemory:
        vectors, _, mask = regions = views[0]
        unit = functional.normalize(self.key(vectors), dim=-1)
        count = unit.new_full((unit.shape[0], 1, 1), unit.shape[1])
        if mask is not None:
            unit = unit.masked_fill(~mask[..., None], 0.0)
            count = mask.sum(1)[:, None, None].to(unit.dtype)
        return GridMemory.of(regions, MutualKeys(unit, count, mean_region(regions)))

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        keys: MutualKeys = memory.keys
        correlations = keys.unit[:, None] @ functional.normalize(words, dim=-1).mT  # (B, K, L, T) R
        word_means = correlations.sum(2) / keys.real  # g_j
        region_means = correlations.mean(3)  # g_i
        u = self.word_kernel(word_means[..., None])  # (B, K, T, 1)
        v = self.region_kernel(region_means[..., None])  # (B, K, L, 1)
        region_scores = (correlations @ u).squeeze(-1) / words.shape[2] / self.temperature
        word_scores = (correlations.mT @ v).squeeze(-1) / keys.real / self.temperature
        return region_scores, words.mean(2) + attended_words(word_scores, words)

    def context(self, maps: CoMaps, query: Query, memory: GridMemory) -> Tensor:
        context = super().context(maps, query, memory)
        mean: Tensor = memory.keys.mean
        return context + functional.pad(mean, (0, self.words.size))
