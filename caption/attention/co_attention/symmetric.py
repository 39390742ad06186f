"""Symmetric co-attention (after COSNet, Lu, Wang et al. 2019): each side attends to the other, element by element."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.base import GridMemory
from caption.attention.co_attention.affinity import AffinityCoAttention
from caption.attention.maps import hide_masked, weighted_sum


class SymmetricCoAttention(AffinityCoAttention):
    """Each element's features are concatenated with a weighted sum of the other side's features.

    With the affinity A (L, T) of regions and words, region i becomes x_i = [a_i; Σ_j softmax_j(A_ij) f_j], the softmax
    over its row; word j becomes x_j = [f_j; Σ_i α_ij a_i], α_ij = softmax_i(A_ij), the softmax over its column.

    This is the form that surveys give, after Lu, Wang et al. 2019, "See More, Know More" (COSNet). Their network
    predicts from every position of a side. A decoder predicts from the last word, T, and reads the regions with its
    weights: z = [x_T; Σ_i α_iT x_i], in which Σ_i α_iT a_i is included only once. The map is α_·T.

    The authors' code (github.com/carrierlxk/COSNet, siamese_model_conf.py) has the affinity kᵀ W f, here
    `GeneralScore`, and a gate on the weighted sums, which is left out here. `SymmetricScore` makes W symmetric.
    """

    def create_comparison(self, size: int) -> None:
        super().create_comparison(size)
        self.context_size += size

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        """Words so far (B, K, T, A) -> scores of the regions (B, K, L); [f_T; Σ_i α_iT Σ_j softmax_j(A_ij) f_j]
        (B, K, 2A)."""
        affinities = self.affinities(words, memory, masked=0.0)  # Aᵀ
        scores = hide_masked(affinities[..., -1, :], memory.mask)
        word_weights = affinities.softmax(-2).mT  # (B, K, L, T)
        attended = weighted_sum(scores.softmax(-1)[..., None, :] @ word_weights, words)
        return scores, torch.cat((words[..., -1, :], attended.squeeze(-2)), -1)
