"""The affinity of two inputs: a score for each region with each word."""

from __future__ import annotations

from torch import Tensor

from caption.attention.base import GridMemory, Query
from caption.attention.co_attention.base import CoAttention
from caption.attention.co_attention.words import WordFeatures
from caption.attention.scored import Score
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class AffinityCoAttention(CoAttention):
    """Base class of the co-attentions that compare each region with each word: A_ij = score(f_j, k_i).

    The two forms of the surveys are `ActivatedGeneralScore`, A = act(K₁ᵀ W K₂) (Lu et al. 2016, eq. 3), and
    `TrilinearScore`, A_ij = w · [k_i; f_j; k_i ∘ f_j] (Seo et al. 2017, eq. 1).

    Args:
        words: the features of the words so far.
        affinity: how a region and a word are compared, with the words as queries.

    Raises:
        UserError: when built with a score that keeps a state.
    """

    def __init__(self, words: WordFeatures, affinity: Score) -> None:
        super().__init__(words)
        self.affinity = affinity

    def prepare(self, keys: Regions) -> TensorTree:
        return self.affinity.keys(keys)

    def affinities(self, words: Tensor, memory: GridMemory, masked: float) -> Tensor:
        """(B, K, T, L) the affinities Aᵀ.

        Args:
            words: (B, K, T, A) the features of the words so far.
            memory: its keys are those of the score.
            masked: the affinity of masked regions.
        """
        affinities = self.affinity(Query(words.flatten(1, 2)), memory).unflatten(1, words.shape[1:3])
        if memory.mask is None:
            return affinities
        return affinities.masked_fill(~memory.mask[:, None, None], masked)
