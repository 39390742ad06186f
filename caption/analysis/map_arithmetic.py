"""Arithmetic on attention maps: shifts, resampling to another grid by area, and scaling to a sum.

A map (..., L) lies row by row on a grid (rows, cols). All grids of an image are taken to cover the same part of the
photo, in equal cells; those of two levels of a CNN differ by less than half of a coarse cell
(`caption.encoders.grid_boxes`). Sums are of magnitudes, Σ_i |α_i|, because weights may be negative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caption.core.regions import Grid

ROUNDING = 1e-4
"""A sum that differs from 1 by less is 1."""

TINY = 1e-30
"""A smaller sum leaves nothing to share."""


def resampled(values: Tensor, grid: Grid, other: Grid) -> Tensor:
    """Values (..., L) on a grid as values (..., L') on another: the mean over each cell's area."""
    return values if grid == other else _resampled(values, grid, other)


def shifted(values: Tensor, grid: Grid, down: float, right: float) -> Tensor:
    """Values (..., L) shifted by a number of rows and columns. What leaves the grid is lost, and zeros come in.

    Fractions of a cell are shared between two cells by area.
    """
    return _resampled(values, grid, grid, down, right)


def with_map_dims(values: Tensor, maps: Tensor) -> Tensor:
    """Values (B, K, L) with as many dimensions between K and L as maps (B, K, ..., L) have."""
    return values.unflatten(1, (values.shape[1], *[1] * (maps.dim() - 3)))


def sums(weights: Tensor) -> Tensor:
    """(..., 1) Σ_i |α_i| of weights (..., L), and exactly 1 where it is 1 but for rounding."""
    total = _total(weights)
    return torch.where((total - 1).abs() < ROUNDING, 1.0, total)


def with_sum_of(weights: Tensor, values: Tensor) -> Tensor:
    """Values (..., L), scaled to the sum of the weights (..., L) in whose place they come, and in their precision."""
    return (values / sums(values)).to(weights) * sums(weights)


def rescaled(left: Tensor, weights: Tensor) -> Tensor:
    """What is left of weights (..., L), scaled to the sum that they had; 0 where nothing is left."""
    return left * (_total(weights) / _total(left).clamp_min(TINY))


def nothing_left(left: Tensor, weights: Tensor) -> bool:
    """Whether somewhere nothing is left of weights (..., L) that had a sum."""
    return bool(((_total(left) < TINY) & (_total(weights) >= TINY)).any())


def _total(weights: Tensor) -> Tensor:
    return weights.abs().sum(-1, keepdim=True)


def _resampled(values: Tensor, grid: Grid, other: Grid, down: float = 0.0, right: float = 0.0) -> Tensor:
    rows, cols = (_overlaps(*sizes).to(values) for sizes in zip(grid, other, (down, right), strict=True))
    return (rows @ values.unflatten(-1, grid) @ cols.T).flatten(-2)


def _overlaps(cells: int, others: int, shift: float) -> Tensor:
    """(others, cells): the share of each of the `others` equal parts of a line that each of its `cells` equal parts
    covers, once these are shifted by `shift` of their lengths."""
    # In units in which all edges are whole numbers, so that equal grids give exactly 0 and 1.
    starts = (torch.arange(cells, dtype=torch.float64) + shift) * others
    targets = torch.arange(others, dtype=torch.float64)[:, None] * cells
    covered = torch.minimum(starts + others, targets + cells) - torch.maximum(starts, targets)
    return covered.clamp_min(0) / cells
