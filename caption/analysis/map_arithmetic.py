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
"""A smaller sum counts as 0."""


def resampled(values: Tensor, grid: Grid, target: Grid) -> Tensor:
    """Values (..., L) on a grid as values (..., L') on a target grid: the mean over each cell's area."""
    return values if grid == target else _resampled(values, grid, target)


def shifted(values: Tensor, grid: Grid, down: float, right: float) -> Tensor:
    """Values (..., L) shifted by a number of rows and columns. Values beyond the grid are lost, and zeros enter.

    Fractions of a cell are shared between two cells by area.
    """
    return _resampled(values, grid, grid, down, right)


def with_map_dims(values: Tensor, maps: Tensor) -> Tensor:
    """Values (B, K, L) with as many dimensions between K and L as maps (B, K, ..., L) have."""
    return values.unflatten(1, (values.shape[1], *[1] * (maps.dim() - 3)))


def sums(weights: Tensor) -> Tensor:
    """(..., 1) Σ_i |α_i| of weights (..., L), and exactly 1 where it is 1 up to rounding."""
    total = _total(weights)
    return torch.where((total - 1).abs() < ROUNDING, 1.0, total)


def with_sum_of(weights: Tensor, values: Tensor) -> Tensor:
    """Values (..., L) in place of weights (..., L), with their sum and precision."""
    return (values / sums(values)).to(weights) * sums(weights)


def rescaled(left: Tensor, weights: Tensor) -> Tensor:
    """The part of weights (..., L) that is left, scaled to the sum of the weights; 0 if nothing is left."""
    return left * (_total(weights) / _total(left).clamp_min(TINY))


def nothing_left(left: Tensor, weights: Tensor) -> bool:
    """Whether nothing is left of some map among weights (..., L) whose sum is not 0."""
    return bool(((_total(left) < TINY) & (_total(weights) >= TINY)).any())


def _total(weights: Tensor) -> Tensor:
    return weights.abs().sum(-1, keepdim=True)


def _resampled(values: Tensor, grid: Grid, target: Grid, down: float = 0.0, right: float = 0.0) -> Tensor:
    rows, cols = (_overlaps(*sizes).to(values) for sizes in zip(grid, target, (down, right), strict=True))
    return (rows @ values.unflatten(-1, grid) @ cols.T).flatten(-2)


def _overlaps(cells: int, parts: int, shift: float) -> Tensor:
    """(parts, cells): the share of each of the `parts` equal parts of a line that each of its equal `cells` covers,
    once these are shifted by `shift` of their lengths."""
    # In units in which all edges are whole numbers, so that equal grids give exactly 0 and 1.
    starts = (torch.arange(cells, dtype=torch.float64) + shift) * parts
    targets = torch.arange(parts, dtype=torch.float64)[:, None] * cells
    covered = torch.minimum(starts + parts, targets + cells) - torch.maximum(starts, targets)
    return covered.clamp_min(0) / cells
