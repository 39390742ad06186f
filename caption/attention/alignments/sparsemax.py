"""Sparsemax: weights can be exactly 0 and are still differentiable (Martins and Astudillo 2016).

The scores are projected onto distributions; a region whose score is far enough below the largest gets weight 0. The
projection is computed exactly, by sorting, as in the paper's algorithm 1. The gradient is that of the formula for the
regions in the support. It is exact almost everywhere, because the support is locally constant.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.base import GridMemory, Query
from caption.attention.maps import single_precision
from caption.attention.scored import Alignment
from caption.core.tensor_tree import TensorTree


class Sparsemax(Alignment):
    """α = argmin_p ‖p − e‖² over distributions p: the Euclidean projection (Martins and Astudillo 2016, section 2)."""

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return sparsemax(scores)


def sparsemax(scores: Tensor) -> Tensor:
    """[e − τ]₊ with τ such that the sum is 1.

    Args:
        scores: (..., L), -inf where masked.

    Returns:
        (..., L) in single precision at least.
    """
    z = shifted(scores, least=-2.0)
    ranked = z.detach().sort(-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    size = (1 + count * ranked > ranked.cumsum(-1)).sum(-1, keepdim=True)
    support = in_support(z, ranked, size)
    threshold = (z.where(support, 0.0).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
    return (z - threshold).where(support, 0.0).clamp_min(0.0)


def shifted(scores: Tensor, least: float) -> Tensor:
    """The scores minus their largest. Values below `least` are outside the support; -inf would give NaN.

    Args:
        scores: (..., L), -inf where masked.
        least: the smallest value returned; all scores in the support must be above it.

    Returns:
        (..., L) in single precision at least.
    """
    scores = single_precision(scores)
    return (scores - scores.detach().amax(-1, keepdim=True)).clamp_min(least)


def in_support(z: Tensor, ranked: Tensor, size: Tensor) -> Tensor:
    """Which scores are among the `size` largest; all of them for NaN, so that the weights are NaN as well.

    Args:
        z: (..., L).
        ranked: `z` in descending order.
        size: (..., 1), the number of regions in the support.

    Returns:
        (..., L) boolean.
    """
    return ~(z < ranked.gather(-1, (size - 1).clamp_min(0)))
