"""Positions of a grid's cells."""

from __future__ import annotations

import torch
from torch import Tensor


def cell_positions(grid: tuple[int, int], like: Tensor) -> Tensor:
    """(L, 2) row and column of each region, counted from 0, in the dtype and on the device of `like`."""
    rows, cols = (torch.arange(count, dtype=like.dtype, device=like.device) for count in grid)
    return torch.cartesian_prod(rows, cols).view(-1, 2)
