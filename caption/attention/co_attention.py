"""Co-attention between the regions and the words so far (Lu et al. 2016; interactive: Ma et al. 2017).

Each side attends to the other: the words weigh the regions, and the regions weigh the words. The words so far are kept
in the mechanism's state, which grows by one vector per step. The context is [v̂; q̂], the attended regions and the
attended words. Only the map of the regions is over the image; the maps also contain q̂.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, ReadOutput, WeighOutput
from caption.attention.maps import hide_masked, weighted_sum
from caption.parts import check_choice
from caption.regions import Regions, Views, mean_region

Affinity = Literal["bilinear", "concat"]


class CoMaps(NamedTuple):
    """The weights of the regions and the attended words."""

    regions: Tensor
    """(B, K, L) weights of the regions."""
    words: Tensor
    """(B, K, A) q̂, the attended words; not a map over regions."""


class WordsSoFar(Attention):
    """Base class of mechanisms that attend to the words so far, too. Their projections are the state.

    Args:
        size: A, the size to which regions and words are projected.
    """

    word: nn.Linear
    """Word vector -> (A,); created by `create_weights`."""

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.size = size

    def no_words(self, like: Tensor, hypotheses: int) -> Tensor:
        """(B, K, 0, A) in the dtype and on the device of a tensor (B, ...)."""
        return like.new_zeros(like.shape[0], hypotheses, 0, self.size)

    def words_so_far(self, query: Query, state: Tensor) -> Tensor:
        """(B, K, T, A), the query's word last."""
        assert query.word is not None
        return torch.cat((state, self.word(query.word)[:, :, None]), 2)


class CoAttention(WordsSoFar):
    """Base class of the co-attentions: projects regions and words to one size, and reads the regions."""

    map_views = {"regions": 0}

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = region_sizes[0] + self.size
        self.region = nn.Linear(region_sizes[0], self.size)
        self.word = nn.Linear(query_sizes.word, self.size)
        self.create_comparison()

    def create_comparison(self) -> None:
        """Create the weights of the comparison."""
        raise NotImplementedError

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.region(views[0].vectors))

    def start(self, memory: GridMemory, hypotheses: int) -> Tensor:
        return self.no_words(memory.keys, hypotheses)

    def weigh(self, query: Query, memory: GridMemory, state: Tensor) -> WeighOutput:
        words = self.words_so_far(query, state)
        scores, attended = self.attend(words, memory)
        return WeighOutput(CoMaps(hide_masked(scores, memory.mask).softmax(-1), attended), words)

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        """Words so far (B, K, T, A) -> scores of the regions (B, K, L), attended words (B, K, A)."""
        raise NotImplementedError

    def read(
        self, maps: CoMaps, query: Query, memory: GridMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        regions = weighted_sum(maps.regions, memory.values)
        return ReadOutput(torch.cat((regions, maps.words.to(regions.dtype)), -1))


class AffinityCoAttention(CoAttention):
    """Base class of the co-attentions that compare each region with each word: their affinity C.

    C is bilinear, tanh(V W Qᵀ), or by concatenation, tanh(w · tanh(U V_i + W Q_t)).

    Args:
        size: A, the size to which regions and words are projected.
        affinity: how C compares a region with a word.
    """

    def __init__(self, size: int = 256, affinity: Affinity = "bilinear") -> None:
        super().__init__(size)
        check_choice("affinity", affinity, get_args(Affinity))
        self.affinity = affinity

    def create_comparison(self) -> None:
        self.compare = Affinities(self.size, self.affinity)

    def affinities(self, words: Tensor, memory: GridMemory, masked: float) -> Tensor:
        """(B, K, L, T) C, with the value `masked` for regions that are not real."""
        affinities = self.compare(memory.keys[:, None], words)
        if memory.mask is None:
            return affinities
        return affinities.masked_fill(~memory.mask[:, None, :, None], masked)


class ParallelCoAttention(AffinityCoAttention):
    """Both sides at once, through their affinity C (Lu et al. 2016, section 3.3, "parallel co-attention"):
    H_v = tanh(V + C Q), H_q = tanh(Q + Cᵀ V), scores w_v · H_v and w_q · H_q.
    """

    def create_comparison(self) -> None:
        super().create_comparison()
        self.region_score = nn.Linear(self.size, 1, bias=False)
        self.word_score = nn.Linear(self.size, 1, bias=False)

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        regions = memory.keys[:, None]  # (B, 1, L, A)
        affinities = self.affinities(words, memory, masked=0.0)
        of_regions = self.region_score((regions + affinities @ words).tanh()).squeeze(-1)
        of_words = self.word_score((words + affinities.mT @ regions).tanh()).squeeze(-1)
        return of_regions, weighted_words(of_words, words)


class MaxCoAttention(AffinityCoAttention):
    """The maximum form: a region's score is that of its best word, max_t C_i,t, and a word's that of its best region.

    Named by Lu et al. 2016 (section 3.3) as the alternative to the parallel form.
    """

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        affinities = self.affinities(words, memory, masked=-torch.inf)
        return affinities.amax(-1), weighted_words(affinities.amax(-2), words)


class AlternatingCoAttention(CoAttention):
    """One side after the other (Lu et al. 2016, section 3.3, "alternating co-attention"): summarise the words, attend
    to the regions, attend to the words.

    Each attention is softmax(w · tanh(W x + U g)), where g is the result of the previous one; the first has no g.

    Args:
        size: A, the size to which regions and words are projected.
    """

    def create_comparison(self) -> None:
        self.summarise = Guided(self.size, guided=False)
        self.to_regions = Guided(self.size)
        self.to_words = Guided(self.size)

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        summary = weighted_words(self.summarise(words), words)
        scores = self.to_regions(memory.keys[:, None], summary)
        regions = hide_masked(scores, memory.mask).softmax(-1) @ memory.keys
        return scores, weighted_words(self.to_words(words, regions), words)


class InteractiveCoAttention(CoAttention):
    """Each side attends with the mean of the other (Ma et al. 2017, section 2): γ(x_i, m) = tanh(x_iᵀ W m + b).

    Args:
        size: A, the size to which regions and words are projected.
    """

    def create_comparison(self) -> None:
        self.to_regions = nn.Linear(self.size, self.size, bias=False)
        self.to_words = nn.Linear(self.size, self.size, bias=False)
        self.offsets = nn.Parameter(torch.zeros(2))

    def attend(self, words: Tensor, memory: GridMemory) -> tuple[Tensor, Tensor]:
        mean = mean_region(Regions(memory.keys, memory.grid, memory.mask))
        of_regions = self.to_regions(words.mean(2)) @ memory.keys.mT + self.offsets[0]
        of_words = (words @ self.to_words(mean)[..., None]).squeeze(-1) + self.offsets[1]
        return of_regions.tanh(), weighted_words(of_words.tanh(), words)


class Affinities(nn.Module):
    """The affinity C (..., L, T) of each region and each word, between -1 and 1."""

    def __init__(self, size: int, affinity: Affinity) -> None:
        super().__init__()
        self.region = nn.Linear(size, size, bias=False)
        self.word = nn.Linear(size, size, bias=False) if affinity == "concat" else None
        self.energy = nn.Linear(size, 1, bias=False) if affinity == "concat" else None

    def forward(self, regions: Tensor, words: Tensor) -> Tensor:
        if self.word is None or self.energy is None:
            return (self.region(regions) @ words.mT).tanh()
        pairs = self.region(regions)[..., :, None, :] + self.word(words)[..., None, :, :]
        return self.energy(pairs.tanh()).squeeze(-1).tanh()


class Guided(nn.Module):
    """Scores w · tanh(W x_i + U g) of vectors x (..., N, A) under a guidance g (..., A)."""

    def __init__(self, size: int, guided: bool = True) -> None:
        super().__init__()
        self.own = nn.Linear(size, size)
        self.guidance = nn.Linear(size, size, bias=False) if guided else None
        self.energy = nn.Linear(size, 1, bias=False)

    def forward(self, vectors: Tensor, guidance: Tensor | None = None) -> Tensor:
        compared = self.own(vectors)
        if self.guidance is not None and guidance is not None:
            compared = compared + self.guidance(guidance)[..., None, :]
        return self.energy(compared.tanh()).squeeze(-1)


def weighted_words(scores: Tensor, words: Tensor) -> Tensor:
    """(B, K, A), the mean of words (B, K, T, A) under the softmax of their scores (B, K, T)."""
    return (scores.softmax(-1)[..., None, :] @ words).squeeze(-2)
