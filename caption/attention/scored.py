"""Attention composed of a score and an alignment, which can be chosen independently (eqs. 4 to 6 of Xu et al. 2015)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, Query, QuerySizes, Reading, Weighed, hide_masked, one_view
from caption.attention.smoothing import smoothed
from caption.errors import UserError
from caption.parts import Part
from caption.regions import Regions, Views
from caption.result import WeightProperties
from caption.tensor_tree import TensorTree


class ScoredMemory(NamedTuple):
    """The memory of one grid: keys, values, mask and size."""

    keys: TensorTree
    """The keys that the score compares with the query, tensors (B, L, ...)."""
    values: Tensor
    """(B, L, D) the vectors that are averaged into the context."""
    mask: Tensor | None
    """(B, L) bool, True where there is a region; None when all are real."""
    grid: tuple[int, int]
    """(rows, cols)."""

    @classmethod
    def of(cls, regions: Regions, keys: TensorTree) -> ScoredMemory:
        """Regions that are their own values."""
        return cls(keys, regions.vectors, regions.mask, regions.grid)


class Score(Part, nn.Module):
    """The similarity of a query and a region: the f_att of eq. 4."""

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        """Create the weights. Called once."""
        raise NotImplementedError

    def keys(self, regions: Regions) -> TensorTree:
        """The part of the score that depends on the image alone, tensors (B, L, ...)."""
        raise NotImplementedError

    def start(self, memory: ScoredMemory, hypotheses: int) -> TensorTree:
        """State before the first step, tensors (B, K, ...) with K = `hypotheses`; None for most scores."""
        return None

    def forward(self, query: Query, memory: ScoredMemory, state: TensorTree = None) -> Tensor:
        """Scores e (B, K, L) of K queries for each image."""
        raise NotImplementedError

    def carry(self, weights: Tensor, state: TensorTree) -> TensorTree:
        """State of the next step, given the weights (B, K, L) that were read."""
        return state


def without_state(attention: Attention, *scores: Score) -> None:
    """Raise a `UserError` if one of the scores keeps a state from step to step, for mechanisms that hand none on."""
    for score in scores:
        if type(score).start is not Score.start:
            raise UserError(
                f"{type(score).__name__} keeps a state from word to word, which {type(attention).__name__} does not "
                "hand on: take another score, or ScoredAttention"
            )


class Aligned(NamedTuple):
    """The result of an alignment."""

    weights: Tensor
    """(B, K, L) α."""
    log_weights: Tensor | None = None
    """(B, K, L) log α, if the alignment needs it more exactly than the logarithm of `weights`."""
    state: TensorTree = None
    """The alignment's state, tensors (B, K, ...)."""


class Choice(NamedTuple):
    """The weights with which the regions are summed into the context."""

    weights: Tensor
    """(B, K, L): α itself, or a one-hot s."""
    location: Tensor | None = None
    """See `Reading`."""
    log_prob: Tensor | None = None
    """See `Reading`."""


class Alignment(Part, nn.Module):
    """The map from scores to weights, and from weights to the regions that are read: the φ of eq. 6."""

    properties: WeightProperties = WeightProperties()
    """Properties of the weights."""

    def build(self, query_sizes: QuerySizes) -> None:
        """Create the alignment's parameters, if it has any. Called once."""

    def start(self, memory: ScoredMemory, hypotheses: int) -> TensorTree:
        """State before the first step, tensors (B, K, ...) with K = `hypotheses`; None for most alignments."""
        return None

    def forward(
        self, scores: Tensor, query: Query, memory: ScoredMemory, state: TensorTree = None
    ) -> Aligned:
        """Scores (B, K, L), -inf where masked -> weights."""
        raise NotImplementedError

    def choose(self, weights: Tensor, aligned: Aligned | None = None) -> Choice:
        """The regions to read, given weights (B, K, L): all, unless the alignment chooses one.

        Args:
            weights: those of `aligned`, or others that replace them.
            aligned: the alignment's result at this step; None = read all regions.
        """
        return Choice(weights)

    def carry(self, weights: Tensor, aligned: Aligned) -> TensorTree:
        """State of the next step, given the weights (B, K, L) that were read."""
        return aligned.state


class ScoredState(NamedTuple):
    """The state of `ScoredAttention` from step to step."""

    score: TensorTree
    alignment: TensorTree


class _StepResult(NamedTuple):
    """What `ScoredAttention` passes from `weigh` to `read` and `carry`."""

    aligned: Aligned
    score_state: TensorTree


class ScoredAttention(Attention):
    """z = Σ_i s_i a_i, with s an alignment of the scores e_i = f_att(a_i, h) (eqs. 4 to 6).

    Args:
        score: how a query and a region are compared.
        alignment: how the scores become weights.
        smoothing: width in cells of a Gaussian over the grid; each score is the mean of its neighbours' under it. Which
            of the neighbouring cells of an object scores highest is chance, and the highest is often one at its edge.
            0: none, as in the paper.

    Raises:
        UserError: the width is negative.
    """

    def __init__(self, score: Score, alignment: Alignment, smoothing: float = 0.0) -> None:
        super().__init__()
        if not smoothing >= 0:
            raise UserError(f"smoothing {smoothing} must be a width of 0 cells or more")
        self.score = score
        self.alignment = alignment
        self.smoothing = smoothing

    @property
    def properties(self) -> WeightProperties:  # type: ignore[override]
        """The properties of the alignment."""
        return self.alignment.properties

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        one_view(self, region_sizes)
        self.score.build(region_sizes[0], query_sizes)
        self.alignment.build(query_sizes)
        self.context_size = region_sizes[0]

    def project(self, views: Views) -> ScoredMemory:
        one_view(self, views)
        return ScoredMemory.of(views[0], self.score.keys(views[0]))

    def start(self, memory: ScoredMemory, hypotheses: int) -> ScoredState:
        return ScoredState(self.score.start(memory, hypotheses), self.alignment.start(memory, hypotheses))

    def weigh(self, query: Query, memory: ScoredMemory, state: ScoredState | None) -> Weighed:
        state = state or ScoredState(None, None)
        scores = self.score(query, memory, state.score)
        if self.smoothing:
            scores = smoothed(scores, memory.grid, self.smoothing, memory.mask)
        scores = hide_masked(scores, memory.mask)
        aligned = self.alignment(scores, query, memory, state.alignment)
        return Weighed(aligned.weights, _StepResult(aligned, state.score))

    def read(
        self, maps: Tensor, query: Query, memory: ScoredMemory, weighed: Weighed | None = None
    ) -> Reading:
        weights, location, log_prob = self.alignment.choose(maps, weighed and weighed.state.aligned)
        # Without autocast, which would convert the values, the largest tensor, at every step.
        with torch.autocast(memory.values.device.type, enabled=False):
            context = weights.to(memory.values.dtype) @ memory.values
        return Reading(context, location, log_prob)

    def carry(self, maps: Tensor, weighed: Weighed) -> ScoredState:
        result: _StepResult = weighed.state
        return ScoredState(
            self.score.carry(maps, result.score_state), self.alignment.carry(maps, result.aligned)
        )
