"""Gaussian means of neighbouring cells, which reduce the noise of single cells."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.maps import cell_positions, single_precision


def smoothed(scores: Tensor, grid: tuple[int, int], width: float, mask: Tensor | None = None) -> Tensor:
    """Σ_j G_ij e_j / Σ_j G_ij over the real regions j, with G_ij = exp(−‖x_i − x_j‖² / 2σ²).

    Li et al. 2019, "Area Attention", section 3, also take means over neighbouring cells, but of keys, in rectangles.

    Args:
        scores: (B, ..., L) e; finite.
        grid: (rows, cols), rows · cols = L.
        width: σ, in cells, above 0.
        mask: (B, L) bool, True where there is a region; None when all are real.

    Returns:
        (B, ..., L) in single precision at least; undefined at masked regions.
    """
    scores = single_precision(scores)
    cells = cell_positions(grid, scores) / width
    nearness = ((cells[:, None] - cells).square().sum(-1) / -2).exp()
    # Autocast would round the means to half precision.
    with torch.autocast(scores.device.type, enabled=False):
        if mask is None:
            return scores @ (nearness / nearness.sum(0))
        real = mask.to(scores.dtype).view(len(mask), *[1] * (scores.ndim - 2), -1)
        return (scores * real) @ nearness / (real @ nearness).clamp_min(torch.finfo(scores.dtype).tiny)
