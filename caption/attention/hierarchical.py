"""Hierarchical attention (Yang et al. 2016): cells within blocks, then blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.options import at_least_one
from caption.attention.scored import Score, build_stateless, score_each
from caption.core.regions import Views
from caption.core.tensor_tree import TensorTree


class BlockMaps(NamedTuple):
    """The weights of a grid's cells and of its blocks."""

    cells: Tensor
    """(B, K, L) the weight of each cell in the context; those of a block sum to the block's weight."""
    blocks: Tensor
    """(B, K, N) the weights of the blocks."""


class BlockMemory(NamedTuple):
    """A grid with its partition into blocks."""

    cells: GridMemory
    block: Tensor
    """(B, L) int64, the block of each cell."""
    blocks: tuple[int, int]
    """(rows, cols) of the blocks, N = rows · cols."""


class HierarchicalAttention(Attention):
    """Attends to the cells of each block, then to the blocks (Yang et al. 2016, section 2.2).

    b_j = Σ_{i in j} α_{i|j} a_i with α_{·|j} = softmax of f_cell(a_i, h) within block j; z = Σ_j β_j b_j with β =
    softmax(f_block(b_j, h)). The map of the cells is β_j α_{i|j}, the weight of each cell in z. In the paper both
    queries are learned, as in `FeedForwardScore`, and a recurrent network over the groups' vectors precedes the second
    attention.

    Args:
        cell_score: compares cells with the query.
        block_score: compares blocks with the query, at every step, since the blocks depend on it.
        block: side of a block in cells; blocks at the lower and right edge may be smaller.

    Raises:
        UserError: `block` is below 1; when built with a score that keeps a state.
    """

    map_views = {"cells": 0, "blocks": 0}

    def __init__(self, cell_score: Score, block_score: Score, block: int = 2) -> None:
        super().__init__()
        at_least_one(self, block=block)
        self.cell_score = cell_score
        self.block_score = block_score
        self.block = block

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        build_stateless(self, self.cell_score, region_sizes[0], query_sizes)
        build_stateless(self, self.block_score, region_sizes[0], query_sizes)

    def memory(self, views: Views) -> BlockMemory:
        vectors, (rows, cols), _ = views[0]
        row, col = (torch.arange(count, device=vectors.device) // self.block for count in (rows, cols))
        blocks = self._blocks(views[0].grid)
        block = (row[:, None] * blocks[1] + col).flatten().expand(vectors.shape[0], -1)
        return BlockMemory(GridMemory.of(views[0], self.cell_score.keys(views[0])), block, blocks)

    def _blocks(self, grid: tuple[int, int]) -> tuple[int, int]:
        return -(-grid[0] // self.block), -(-grid[1] // self.block)

    def weigh(self, query: Query, memory: BlockMemory, state: TensorTree) -> WeighOutput:
        cells, number = memory.cells, memory.blocks[0] * memory.blocks[1]
        scores = hide_masked(self.cell_score(query, cells), cells.mask)
        member = memory.block[:, None, None] == torch.arange(number, device=scores.device)[:, None]
        within = scores[:, :, None].masked_fill(~member, -torch.inf)  # (B, K, N, L)
        empty = (within == -torch.inf).all(-1)  # a block whose cells are all masked
        within = within.masked_fill(empty[..., None], 0.0).softmax(-1).masked_fill(empty[..., None], 0.0)
        vectors = weighted_sum(within, cells.values[:, None])  # (B, K, N, D)
        block_scores = score_each(self.block_score, query, vectors, memory.blocks).masked_fill(
            empty, -torch.inf
        )
        weights = block_scores.softmax(-1)
        return WeighOutput(BlockMaps((weights[..., None] * within).sum(2), weights))

    def context(self, maps: BlockMaps, query: Query, memory: BlockMemory) -> Tensor:
        return super().context(maps, query, memory.cells)

    def grids(self, views: Sequence[tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
        return {"cells": views[0], "blocks": self._blocks(views[0])}
