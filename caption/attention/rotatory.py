"""Rotatory attention (Zheng and Xia 2018): a target between two contexts, each guiding the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, Query, QuerySizes, Reading, Weighed, hide_masked, two_views
from caption.attention.scored import ScoredMemory
from caption.regions import Views


class RotatoryMaps(NamedTuple):
    """The maps of two grids and the attended words."""

    left: Tensor
    """(B, K, L) over the first view."""
    right: Tensor
    """(B, K, L') over the second view."""
    words: Tensor
    """(B, K, 2A) the words so far, attended with each of the two results; not a map over regions."""


class RotatoryAttention(Attention):
    """Attention among three inputs: the words so far are the target, and two grids of the image its left and right
    context.

    r_t = mean of the words; r_l and r_r = the grids, attended with r_t; then the words, attended with r_l and with r_r.
    All scores are tanh(xᵀ W r + b). z = [r_l; r_r; words under r_l; words under r_r]. Takes two views.

    Args:
        size: A, the size to which all inputs are projected.

    Raises:
        UserError: when built for another number of views than two.
    """

    several_views = True

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.size = size

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        two_views(self, region_sizes)
        self.context_size = sum(region_sizes) + 2 * self.size
        self.regions = nn.ModuleList(nn.Linear(size, self.size) for size in region_sizes)
        self.word = nn.Linear(query_sizes.word, self.size)
        self.to_regions = nn.ModuleList(nn.Linear(self.size, self.size, bias=False) for _ in range(2))
        self.from_regions = nn.ModuleList(nn.Linear(size, self.size, bias=False) for size in region_sizes)
        self.offsets = nn.Parameter(torch.zeros(4))

    def project(self, views: Views) -> tuple[ScoredMemory, ...]:
        two_views(self, views)
        return tuple(
            ScoredMemory.of(view, project(view.vectors))
            for project, view in zip(self.regions, views, strict=True)
        )

    def start(self, memory: tuple[ScoredMemory, ...], hypotheses: int) -> Tensor:
        """(B, K, 0, A): no words yet."""
        keys = memory[0].keys
        return keys.new_zeros(keys.shape[0], hypotheses, 0, self.size)

    def weigh(self, query: Query, memory: tuple[ScoredMemory, ...], state: Tensor) -> Weighed:
        assert query.word is not None
        words = torch.cat((state, self.word(query.word)[:, :, None]), 2)  # (B, K, T, A)
        target = words.mean(2)
        maps, attended = [], []
        for side, (to_regions, from_regions) in enumerate(
            zip(self.to_regions, self.from_regions, strict=True)
        ):
            grid = memory[side]
            scores = (to_regions(target) @ grid.keys.mT + self.offsets[side]).tanh()
            scores = hide_masked(scores, grid.mask)
            maps.append(scores.softmax(-1))
            read = from_regions(maps[-1].to(grid.values.dtype) @ grid.values)
            of_words = ((words @ read[..., None]).squeeze(-1) + self.offsets[2 + side]).tanh().softmax(-1)
            attended.append((of_words[..., None, :] @ words).squeeze(-2))
        return Weighed(RotatoryMaps(maps[0], maps[1], torch.cat(attended, -1)), words)

    def read(
        self,
        maps: RotatoryMaps,
        query: Query,
        memory: tuple[ScoredMemory, ...],
        weighed: Weighed | None = None,
    ) -> Reading:
        sides = [
            weights.to(grid.values.dtype) @ grid.values
            for weights, grid in zip((maps.left, maps.right), memory, strict=True)
        ]
        return Reading(torch.cat((*sides, maps.words), -1))

    def summary(self, maps: RotatoryMaps) -> Tensor:
        return maps.left

    def grids(self, views: Sequence[tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
        return {"left": views[0], "right": views[1]}
