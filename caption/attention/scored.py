"""Soft and hard attention (Xu et al. 2015, eqs. 4 to 6): a score and an alignment, which vary independently.

The paper's soft attention is `ScoredAttention(AdditiveScore(), Softmax())`: e in `scores/additive.py`, α in
`alignments/soft.py`, z in `ScoredAttention.read`. Hard attention has `Multinoulli()` of `alignments/hard.py` as its
alignment.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, ReadOutput, WeighOutput
from caption.attention.maps import hide_masked, single_precision, weighted_sum
from caption.attention.smoothing import smoothed
from caption.core.errors import UserError
from caption.core.parts import Part
from caption.core.regions import Grid, Regions, Views, WeightProperties
from caption.core.tensor_tree import TensorTree, map_tensors


class Score(Part, nn.Module):
    """The similarity of a query and a region: the f_att of eq. 4."""

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        """Create the weights. Called once."""
        raise NotImplementedError

    def keys(self, regions: Regions) -> TensorTree:
        """The part of the score that depends on the image alone, tensors (B, L, ...)."""
        raise NotImplementedError

    def start(self, memory: GridMemory, hypotheses: int) -> TensorTree:
        """State before the first step, tensors (B, K, ...) with K = `hypotheses`; None for most scores."""
        return None

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        """Scores e (B, K, L) of K queries for each image."""
        raise NotImplementedError

    def carry(self, weights: Tensor, state: TensorTree) -> TensorTree:
        """State of the next step, given the weights (B, K, L) that were read."""
        return state

    def penalty(self) -> Tensor | None:
        """The penalty that `ScoredAttention` returns, see `Attention.penalty`; None for most scores."""
        return None


def build_stateless(attention: Attention, score: Score, region_size: int, query_sizes: QuerySizes) -> None:
    """Build the score of a mechanism that passes no state from step to step.

    Raises:
        UserError: the score needs a state.
    """
    if type(score).start is not Score.start:
        raise UserError(
            f"{type(score).__name__} keeps a state from word to word, which {type(attention).__name__} does not "
            "pass on: take another score, or ScoredAttention"
        )
    score.build(region_size, query_sizes)


def score_copies(score: Score, number: int) -> list[Score]:
    """The given score, not built yet, and copies of it, each with its own weights; `number` scores in all."""
    return [score, *(copy.deepcopy(score) for _ in range(number - 1))]


def score_each(score: Score, query: Query, vectors: Tensor, grid: Grid | None = None) -> Tensor:
    """Scores of vectors that differ from query to query: (B, K, N, D) -> (B, K, N).

    Args:
        score: without a state, see `build_stateless`.
        query: K queries for each image.
        vectors: N for each query.
        grid: (rows, cols) of the N vectors; None = a row.
    """
    regions = Regions(vectors.flatten(0, 1), grid or (1, vectors.shape[2]))
    single: Query = map_tensors(lambda part: part.flatten(0, 1)[:, None], query)
    scores = score(single, GridMemory.of(regions, score.keys(regions)))
    return scores.squeeze(1).unflatten(0, vectors.shape[:2])


def check_equal_lengths(score: Score, region_size: int, query_sizes: QuerySizes) -> None:
    """Raise a `UserError` unless the score's regions and queries have the same length."""
    if region_size != query_sizes.hidden:
        raise UserError(
            f"{type(score).__name__} needs regions and queries of the same length, but regions have {region_size} "
            f"numbers and queries {query_sizes.hidden}: take a score that projects them, such as ScaledDotScore, or "
            "make the lengths equal"
        )


class Alignment(Part, nn.Module):
    """The map from scores to weights, and from weights to the regions that are read: the φ of eq. 6."""

    properties: WeightProperties = WeightProperties()
    """Properties of the weights."""

    def build(self, query_sizes: QuerySizes) -> None:
        """Create the alignment's parameters, if it has any. Called once."""

    def start(self, memory: GridMemory, hypotheses: int) -> TensorTree:
        """State before the first step, tensors (B, K, ...) with K = `hypotheses`; None for most alignments."""
        return None

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        """Scores (B, K, L), -inf where masked -> weights α (B, K, L)."""
        raise NotImplementedError

    def select(
        self, weights: Tensor, state: TensorTree = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The regions to read, given weights (B, K, L): all, unless the alignment chooses one.

        Args:
            weights: α of this step, perhaps edited.
            state: of this step; None = do not choose; read all regions.

        Returns:
            the weights (B, K, L) of the weighted sum, α itself or a one-hot s; the location and its log-density, see
            `ReadOutput`.
        """
        return weights, None, None

    def carry(self, weights: Tensor, state: TensorTree) -> TensorTree:
        """State of the next step, given the weights (B, K, L) that were read and the state of this step."""
        return state


class ScoredState(NamedTuple):
    """The state of `ScoredAttention` from step to step."""

    score: TensorTree
    alignment: TensorTree


class ScoredAttention(Attention):
    """z = Σ_i s_i a_i, with s an alignment of the scores e_i = f_att(a_i, h) (eqs. 4 to 6).

    Args:
        score: how a query and a region are compared.
        alignment: how the scores become weights.
        smoothing: width in cells of a Gaussian over the grid; each score becomes the Gaussian mean of its neighbours.
            Without it, chance decides which cell of an object scores highest, and that is often a cell at its edge.
            0 = no smoothing, as in the paper.

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

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.score.build(region_sizes[0], query_sizes)
        self.alignment.build(query_sizes)

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.score.keys(views[0]))

    def start(self, memory: GridMemory, hypotheses: int) -> ScoredState:
        return ScoredState(self.score.start(memory, hypotheses), self.alignment.start(memory, hypotheses))

    def weigh(self, query: Query, memory: GridMemory, state: ScoredState | None) -> WeighOutput:
        state = state or ScoredState(None, None)
        scores = self.score(query, memory, state.score)  # eq. 4
        if self.smoothing:
            scores = smoothed(scores, memory.grid, self.smoothing, memory.mask)
        scores = hide_masked(scores, memory.mask)
        scores = single_precision(scores)  # weights are summed over the steps
        weights = self.alignment(scores, query, memory, state.alignment)  # eq. 5
        return WeighOutput(weights, state)

    def read(
        self, maps: Tensor, query: Query, memory: GridMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        weights, location, log_prob = self.alignment.select(maps, weighed and weighed.state.alignment)
        return ReadOutput(weighted_sum(weights, memory.values), location, log_prob)  # eq. 6

    def carry(self, maps: Tensor, weighed: WeighOutput) -> ScoredState:
        score, alignment = weighed.state
        return ScoredState(self.score.carry(maps, score), self.alignment.carry(maps, alignment))

    def penalty(self, maps: Mapping[str, Tensor]) -> Tensor | None:
        return self.score.penalty()
