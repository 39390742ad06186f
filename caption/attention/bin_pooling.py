"""Poolings over parts of the grid, which keep coarse positions: bands of rows, or a spatial pyramid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from caption.attention.base import QuerySizes
from caption.attention.options import at_least_one
from caption.attention.pooling import Pooling
from caption.core.errors import UserError
from caption.core.regions import Grid
from caption.core.tensor_tree import indices

PooledBy = Literal["max", "mean"]


class BinPooling(Pooling):
    """Base class of poolings z = [p_1; …; p_N], each p_n the maximum or the mean of the regions in bin n.

    A bin without real regions gives 0.
    """

    pooled_by: PooledBy = "max"

    def bins(self, grid: Grid) -> list[list[int]]:
        """The regions of each bin."""
        raise NotImplementedError

    def contribution(self, values: Tensor, real: Tensor, grid: Grid) -> Tensor:
        """The share of each region among the regions read by all bins and features."""
        counts = [self._counts(values, real, cells) for cells in self.bins(grid) if cells]
        total = torch.stack(counts).sum(0) * real
        return total / total.sum(-1, keepdim=True)

    def _counts(self, values: Tensor, real: Tensor, cells: list[int]) -> Tensor:
        """(B, L) the contribution of each region to a non-empty bin; the sum is 1, or the number of features for
        maxima."""
        regions = indices(cells, values.device)
        if self.pooled_by == "max":
            largest = values.masked_fill(~real[..., None], -torch.inf)[:, regions].argmax(1)  # (B, D)
            return functional.one_hot(regions[largest], values.shape[1]).sum(1).to(values.dtype)
        inside = real[:, regions].to(values.dtype)
        shares = inside / inside.sum(1, keepdim=True).clamp_min(1)
        return shares @ functional.one_hot(regions, values.shape[1]).to(values.dtype)

    def pool(self, values: Tensor, weights: Tensor, grid: Grid) -> Tensor:
        return torch.cat([self._pooled(values, weights > 0, cells) for cells in self.bins(grid)], -1)

    def _pooled(self, values: Tensor, present: Tensor, cells: list[int]) -> Tensor:
        """(B, K, D) of one bin; present (B, K, L) bool."""
        if not cells:
            return values.new_zeros(*present.shape[:2], values.shape[-1])
        regions = indices(cells, values.device)
        inside, mask = values[:, :, regions], present[:, :, regions, None]
        if self.pooled_by == "max":
            largest = inside.masked_fill(~mask, -torch.inf).amax(2)
            return largest.where(largest > -torch.inf, 0.0)
        return (inside * mask).sum(2) / mask.sum(2).clamp_min(1)


class ChunkMaxPooling(BinPooling):
    """The maxima of several chunks of the regions, concatenated.

    Chunks are runs of regions in row order, that is, bands of rows (Chen et al. 2015, dynamic multi-pooling, with fixed
    chunks).

    Args:
        chunks: C; the context has C · D numbers, 0 for chunks beyond the number of regions.

    Raises:
        UserError: `chunks` is below 1.
    """

    def __init__(self, chunks: int = 4) -> None:
        super().__init__()
        at_least_one(self, chunks=chunks)
        self.chunks = chunks

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = self.chunks * region_sizes[0]

    def bins(self, grid: Grid) -> list[list[int]]:
        larger = grid[0] * grid[1] % self.chunks  # number of chunks with one region more
        smallest = grid[0] * grid[1] // self.chunks
        edges = [smallest * chunk + min(chunk, larger) for chunk in range(self.chunks + 1)]
        return [[*range(first, last)] for first, last in pairwise(edges)]


class SpatialPyramidPooling(BinPooling):
    """Spatial pyramid pooling: maxima or means over ever finer bins of the grid; 1×1, 2×2 and 4×4 bins are 21.

    Of n×n bins, bin (i, j) has the rows from ⌊i · rows / n⌋ to ⌈(i + 1) · rows / n⌉, and columns likewise, so that no
    bin is empty. Source: He et al. 2015, "Spatial Pyramid Pooling in Deep Convolutional Networks for Visual
    Recognition", section 2.2, for maxima; after Lazebnik et al. 2006, who use sums.

    Args:
        sides: n of each level; the context has Σ n² · D numbers.
        pooled_by: how the regions in a bin are pooled.

    Raises:
        UserError: `sides` is empty, or a side is below 1.
        UserError: `pooled_by` is another string.
    """

    def __init__(self, sides: Sequence[int] = (1, 2, 4), pooled_by: PooledBy = "max") -> None:
        super().__init__()
        if not sides or min(sides) < 1:
            raise UserError(
                f"sides {list(sides)} of SpatialPyramidPooling must be one or more numbers, each at least 1"
            )
        self.sides = tuple(sides)
        self.pooled_by = pooled_by

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = sum(side**2 for side in self.sides) * region_sizes[0]

    def bins(self, grid: Grid) -> list[list[int]]:
        return [
            [row * grid[1] + col for row, col in product(rows, cols)]
            for side in self.sides
            for rows, cols in product(_parts(grid[0], side), _parts(grid[1], side))
        ]


def _parts(cells: int, parts: int) -> list[range]:
    """The cells along a side of the grid in n parts, which may overlap by a cell."""
    return [range(part * cells // parts, -(-(part + 1) * cells // parts)) for part in range(parts)]
