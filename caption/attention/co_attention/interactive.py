"""Interactive co-attention (Ma et al. 2017, "Interactive Attention Networks"): each side attends with the mean of the
other."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from caption.attention.base import GridMemory, Query
from caption.attention.co_attention.base import CoAttention, attended_words
from caption.attention.co_attention.words import WordFeatures
from caption.attention.scored import Score, score_copies, score_each
from caption.core.regions import Regions, mean_region
from caption.core.tensor_tree import TensorTree


class InteractiveKeys(NamedTuple):
    """The regions' keys in the forms that the scores use."""

    compared: TensorTree
    """The keys of the regions' score, tensors (B, ...)."""
    mean: Tensor
    """(B, 1, A) k̄₁, the mean of the keys of the real regions."""


class InteractiveCoAttention(CoAttention):
    """e⁽¹⁾_i = score(k̄₂, k⁽¹⁾_i) and e⁽²⁾_j = score(k̄₁, k⁽²⁾_j), in parallel; k̄ is the mean of the keys of a side.

    Each side has its own score. In Ma et al. 2017 (eqs. 5 to 7) the score is `ActivatedGeneralScore`,
    tanh(kᵀ W k̄ + b).

    Args:
        words: the features of the words so far.
        score: how a query and a key are compared.

    Raises:
        UserError: when built with a score that keeps a state.
    """

    def __init__(self, words: WordFeatures, score: Score) -> None:
        super().__init__(words)
        self.region_score, self.word_score = score_copies(score, 2)

    def prepare(self, keys: Regions) -> InteractiveKeys:
        return InteractiveKeys(self.region_score.keys(keys), mean_region(keys))

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        keys: InteractiveKeys = memory.keys
        region_scores = self.region_score(Query(words.mean(2)), memory._replace(keys=keys.compared))
        mean = keys.mean.expand(-1, words.shape[1], -1)
        return region_scores, attended_words(score_each(self.word_score, Query(mean), words), words)
