"""Rotatory attention (Zheng and Xia 2018): a target between two contexts, each guiding the others."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes, ReadOutput, WeighOutput
from caption.attention.co_attention import WordsSoFar, weighted_words
from caption.attention.maps import hide_masked, weighted_sum
from caption.regions import Views


class RotatoryMaps(NamedTuple):
    """The maps of two grids and the attended words."""

    left: Tensor
    """(B, K, L) over the first view."""
    right: Tensor
    """(B, K, L') over the second view."""
    words: Tensor
    """(B, K, 2A) the words so far, attended with each of the two results; not a map over regions."""


class RotatoryAttention(WordsSoFar):
    """Attention among three inputs: the words so far are the target, and two grids of the image its left and right
    context.

    r_t = mean of the words; r_l and r_r = the grids, attended with r_t; then the words, attended with r_l and with r_r.
    All scores are tanh(xᵀ W r + b). z = [r_l; r_r; words under r_l; words under r_r].

    Args:
        size: A, the size to which all inputs are projected.

    Raises:
        UserError: when built for another number of views than two.
    """

    view_count = 2
    map_views = {"left": 0, "right": 1}

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = sum(region_sizes) + 2 * self.size
        self.regions = nn.ModuleList(nn.Linear(size, self.size) for size in region_sizes)
        self.word = nn.Linear(query_sizes.word, self.size)
        self.to_regions = nn.ModuleList(nn.Linear(self.size, self.size, bias=False) for _ in range(2))
        self.from_regions = nn.ModuleList(nn.Linear(size, self.size, bias=False) for size in region_sizes)
        self.offsets = nn.Parameter(torch.zeros(4))

    def memory(self, views: Views) -> tuple[GridMemory, ...]:
        return tuple(
            GridMemory.of(view, project(view.vectors))
            for project, view in zip(self.regions, views, strict=True)
        )

    def start(self, memory: tuple[GridMemory, ...], hypotheses: int) -> Tensor:
        return self.no_words(memory[0].keys, hypotheses)

    def weigh(self, query: Query, memory: tuple[GridMemory, ...], state: Tensor) -> WeighOutput:
        words = self.words_so_far(query, state)
        target = words.mean(2)
        maps, attended = [], []
        for side, (to_regions, from_regions) in enumerate(
            zip(self.to_regions, self.from_regions, strict=True)
        ):
            grid = memory[side]
            scores = (to_regions(target) @ grid.keys.mT + self.offsets[side]).tanh()
            maps.append(hide_masked(scores, grid.mask).softmax(-1))
            context = from_regions(weighted_sum(maps[-1], grid.values))
            of_words = ((words @ context[..., None]).squeeze(-1) + self.offsets[2 + side]).tanh()
            attended.append(weighted_words(of_words, words))
        return WeighOutput(RotatoryMaps(maps[0], maps[1], torch.cat(attended, -1)), words)

    def read(
        self,
        maps: RotatoryMaps,
        query: Query,
        memory: tuple[GridMemory, ...],
        weighed: WeighOutput | None = None,
    ) -> ReadOutput:
        left, right = (weighted_sum(map_, grid.values) for map_, grid in zip(maps[:2], memory, strict=True))
        return ReadOutput(torch.cat((left, right, maps.words), -1))
