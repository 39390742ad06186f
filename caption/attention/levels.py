"""Attention to several grids of one image: layers of an encoder, or levels of a pyramid.

One level may query the next (attention via attention), one may weigh the other's cells, or they are read side by side.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.scored import Score, build_stateless
from caption.core.errors import UserError
from caption.core.regions import Grid, Regions, Views
from caption.core.tensor_tree import TensorTree


class TwoLevelMaps(NamedTuple):
    """A map for each of two grids."""

    fine: Tensor
    """(B, K, L)."""
    coarse: Tensor
    """(B, K, L')."""


class TwoLevelMemory(NamedTuple):
    """Two grids of one image."""

    fine: GridMemory
    coarse: GridMemory
    parent: Tensor | None = None
    """(B, L) int64: the coarse cell that contains the centre of each fine cell, for mechanisms that need it."""


class LevelAttention(Attention):
    """Base class of mechanisms with a map for each grid: z = [Σ α_i a_i; Σ β_j b_j; ...]."""

    def context(self, maps: TensorTree, query: Query, memory: Any) -> Tensor:
        """The memory begins with that of each grid."""
        contexts = [weighted_sum(weights, level.values) for weights, level in zip(maps, memory, strict=False)]
        return torch.cat(contexts, -1)


class TwoLevelAttention(LevelAttention):
    """Base class of mechanisms for a fine and a coarse grid, the fine one first. z = [Σ α_i a_i; Σ β_j b_j].

    Args:
        fine_score: compares the cells of the first view with its query.
        coarse_score: compares the cells of the second view with its query.

    Raises:
        UserError: when built for a number of views other than two, or with a score that keeps a state.
    """

    view_count = 2
    map_views = {"fine": 0, "coarse": 1}

    def __init__(self, fine_score: Score, coarse_score: Score) -> None:
        super().__init__()
        self.fine_score = fine_score
        self.coarse_score = coarse_score

    def memory(self, views: Views) -> TwoLevelMemory:
        fine, coarse = views
        return TwoLevelMemory(
            GridMemory.of(fine, self.fine_score.keys(fine)),
            GridMemory.of(coarse, self.coarse_score.keys(coarse)),
        )


class AttentionViaAttention(TwoLevelAttention):
    """The coarse context is part of the fine query (Zhao and Zhang 2018).

    c_coarse = Σ_j β_j b_j with β = softmax(f_coarse(b, q)); c_fine = Σ_i α_i a_i with α = softmax(f_fine(a, [q;
    c_coarse])); z = [c_fine; c_coarse]. Editing the coarse map does not change the fine one.
    """

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        fine, coarse = region_sizes
        build_stateless(self, self.coarse_score, coarse, query_sizes)
        joined = query_sizes._replace(hidden=query_sizes.hidden + coarse)
        build_stateless(self, self.fine_score, fine, joined)

    def weigh(self, query: Query, memory: TwoLevelMemory, state: TensorTree) -> WeighOutput:
        coarse = hide_masked(self.coarse_score(query, memory.coarse), memory.coarse.mask).softmax(-1)
        context = weighted_sum(coarse, memory.coarse.values)
        joined = query._replace(hidden=torch.cat((query.hidden, context.to(query.hidden.dtype)), -1))
        fine = hide_masked(self.fine_score(joined, memory.fine), memory.fine.mask).softmax(-1)
        return WeighOutput(TwoLevelMaps(fine, coarse))


class ParentWeightedAttention(TwoLevelAttention):
    """Fine weights are multiplied by the weights of their parents and normalised again: α_i ∝ exp(f_fine(a_i, h)) ·
    β_parent(i) with β = softmax(f_coarse(b, h)).

    A fine cell's parent is the coarse cell that contains its centre. Source: Nallapati et al. 2016, section 2.4, for
    words and their sentences; there the context is that of the words alone.
    """

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        build_stateless(self, self.fine_score, region_sizes[0], query_sizes)
        build_stateless(self, self.coarse_score, region_sizes[1], query_sizes)

    def memory(self, views: Views) -> TwoLevelMemory:
        fine, coarse = views
        row, col = (
            (torch.arange(fine_cells, device=fine.vectors.device) * 2 + 1) * coarse_cells // (2 * fine_cells)
            for fine_cells, coarse_cells in zip(fine.grid, coarse.grid, strict=True)
        )
        parent = (row[:, None] * coarse.grid[1] + col).flatten()
        return super().memory(views)._replace(parent=parent.expand(fine.vectors.shape[0], -1))

    def weigh(self, query: Query, memory: TwoLevelMemory, state: TensorTree) -> WeighOutput:
        coarse = hide_masked(self.coarse_score(query, memory.coarse), memory.coarse.mask)
        log_coarse = coarse.log_softmax(-1)
        assert memory.parent is not None
        parent = memory.parent[:, None].expand(-1, coarse.shape[1], -1)
        fine = self.fine_score(query, memory.fine) + log_coarse.gather(-1, parent)
        return WeighOutput(TwoLevelMaps(hide_masked(fine, memory.fine.mask).softmax(-1), log_coarse.exp()))


class PyramidAttention(LevelAttention):
    """Attention to each of N levels, each with its own score: z = [c_1; …; c_N], c_n = Σ_i α^n_i a^n_i, α^n =
    softmax(f_n(a^n, h)).

    Source: Jetley et al. 2018, "Learn to Pay Attention", section 3, for layers of a CNN.

    Args:
        scores: f_n, one for each view; the heatmap shows the first view's map.

    Raises:
        UserError: `scores` has fewer than two entries; when built for another number of views, or with a score that
            keeps a state.
    """

    def __init__(self, scores: Sequence[Score]) -> None:
        super().__init__()
        if len(scores) < 2:
            raise UserError(
                f"PyramidAttention needs a score for each of two or more grids, not {len(scores)}: for one grid take "
                "ScoredAttention"
            )
        self.scores = nn.ModuleList(scores)
        self.view_count = len(scores)
        self.map_views = {name: view for view, name in enumerate(pyramid_maps(len(scores))._fields)}

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        for score, region_size in zip(self._scores(), region_sizes, strict=True):
            build_stateless(self, score, region_size, query_sizes)

    def _scores(self) -> list[Score]:
        return [score for score in self.scores if isinstance(score, Score)]

    def memory(self, views: Views) -> tuple[GridMemory, ...]:
        return tuple(
            GridMemory.of(view, score.keys(view)) for score, view in zip(self._scores(), views, strict=True)
        )

    def weigh(self, query: Query, memory: tuple[GridMemory, ...], state: TensorTree) -> WeighOutput:
        maps = [
            hide_masked(score(query, level), level.mask).softmax(-1)
            for score, level in zip(self.scores, memory, strict=True)
        ]
        return WeighOutput(pyramid_maps(len(maps))(*maps))


class PooledPyramidAttention(PyramidAttention):
    """Pyramid attention on one grid: the first level is the grid, each further level its means in n×n bins.

    z = [c_0; c_1; …], c_n = Σ_i α^n_i p^n_i, α^n = softmax(f_n(p^n, h)), with p^n_i the mean of bin i's regions. The
    bins are those of `SpatialPyramidPooling`. A bin without real regions has weight 0.

    Args:
        scores: f_n, one for each level, the grid first.
        sides: n of each further level.

    Raises:
        UserError: there is not one score more than sides, a side is below 1, or as for `PyramidAttention`.
    """

    def __init__(self, scores: Sequence[Score], sides: Sequence[int] = (4, 2, 1)) -> None:
        super().__init__(scores)
        if len(scores) != len(sides) + 1 or min(sides) < 1:
            raise UserError(
                f"sides {list(sides)} of PooledPyramidAttention must be one fewer than its {len(scores)} scores, and "
                "each at least 1"
            )
        self.sides = tuple(sides)
        self.view_count = 1
        self.map_views = dict.fromkeys(self.map_views, 0)

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        levels = region_sizes * len(self.scores)
        self.context_size = sum(levels)
        super().create_weights(levels, query_sizes)

    def memory(self, views: Views) -> tuple[GridMemory, ...]:
        return super().memory((*views, *(bin_means(views[0], side) for side in self.sides)))

    def grids(self, views: Sequence[Grid]) -> Mapping[str, Grid]:
        return dict(zip(self.map_views, [views[0], *((side, side) for side in self.sides)], strict=True))


def bin_means(regions: Regions, side: int) -> Regions:
    """The means of the real regions in `side` × `side` bins; bins without real regions are masked."""

    def pooled(vectors: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(vectors.mT.unflatten(-1, regions.grid), side).flatten(2).mT

    if regions.mask is None:
        return Regions(pooled(regions.vectors), (side, side))
    real = regions.mask[..., None]
    shares = pooled(real.to(regions.vectors.dtype))  # (B, side², 1) the real share of each bin
    present = shares > 0
    means = pooled(regions.vectors.masked_fill(~real, 0.0)) / shares.masked_fill(~present, 1.0)
    return Regions(means, (side, side), present.squeeze(-1))


@cache
def pyramid_maps(levels: int) -> Any:
    """The named tuple of the maps of N levels: `level_0` (B, K, L_0), `level_1` (B, K, L_1), ..."""
    return namedtuple("PyramidMaps", [f"level_{number}" for number in range(levels)])
