"""Symmetric co-attention (after COSNet, Lu, Wang et al. 2019): each side is replaced by its reading of the other."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.base import GridMemory
from caption.attention.co_attention.affinity import AffinityCoAttention
from caption.attention.maps import hide_masked, weighted_sum


class SymmetricCoAttention(AffinityCoAttention):
    """Each side is replaced by what it attends to in the other, and concatenated with its own features.

    With the affinity A (L, T) of regions and words, region i becomes x_i = [a_i; Σ_j softmax_j(A_ij) f_j], the softmax
    over its row; word j becomes x_j = [f_j; Σ_i α_ij a_i], α_ij = softmax_i(A_ij), the softmax over its column.

    This is the form that surveys give, after Lu, Wang et al. 2019, "See More, Know More" (COSNet). Their network
    predicts from every place of a side. A decoder predicts from the last place of the words, T, and reads the regions
    with its weights: z = [x_T; Σ_i α_iT x_i], in which Σ_i α_iT a_i stands once. The map is α_·T.

    The authors' code (github.com/carrierlxk/COSNet, siamese_model_conf.py) has the affinity kᵀ W f, here
    `GeneralScore`, and multiplies what is attended to by a gate, which is left out. `SymmetricScore` makes W symmetric.
    """

    def create_comparison(self, size: int) -> None:
        super().create_comparison(size)
        self.context_size += size

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        """Words so far (B, K, T, A) -> scores of the regions (B, K, L); [f_T; Σ_i α_iT Σ_j softmax_j(A_ij) f_j]
        (B, K, 2A)."""
        affinities = self.affinities(words, memory, masked=0.0)  # Aᵀ
        of_last = hide_masked(affinities[..., -1, :], memory.mask)
        over_words = affinities.softmax(-2).mT  # (B, K, L, T)
        read = weighted_sum(of_last.softmax(-1)[..., None, :] @ over_words, words)
        return of_last, torch.cat((words[..., -1, :], read.squeeze(-2)), -1)
