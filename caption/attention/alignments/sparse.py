"""Sparse alignments: weights can be exactly 0 and are still differentiable.

Both are projections of the scores; a region whose score is far enough below the largest gets no weight. They are
computed exactly, by sorting, as in the papers' algorithms. The gradient flows through the formula for the regions in
the support. It is exact almost everywhere, because the support is locally constant.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.base import GridMemory, Query
from caption.attention.scored import Alignment
from caption.core.tensor_tree import TensorTree


class Sparsemax(Alignment):
    """α = argmin_p ‖p − e‖² over distributions p: the Euclidean projection (Martins and Astudillo 2016, section 2)."""

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return sparsemax(scores)


class Entmax15(Alignment):
    """α-entmax with α = 1.5: between softmax and sparsemax (Peters et al. 2019, section 3)."""

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return entmax15(scores)


def sparsemax(scores: Tensor) -> Tensor:
    """[e − τ]₊ with τ such that the sum is 1.

    Args:
        scores: (..., L), -inf where masked.

    Returns:
        (..., L) in single precision at least.
    """
    z = _shifted(scores, least=-2.0)
    ranked = z.detach().sort(-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    size = (1 + count * ranked > ranked.cumsum(-1)).sum(-1, keepdim=True)
    support = _support(z, ranked, size)
    threshold = (z.where(support, 0.0).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
    return (z - threshold).where(support, 0.0).clamp_min(0.0)


def entmax15(scores: Tensor) -> Tensor:
    """[e/2 − τ]₊² with τ such that the sum is 1.

    Args:
        scores: (..., L), -inf where masked.

    Returns:
        (..., L) in single precision at least.
    """
    z = _shifted(scores, least=-4.0) / 2
    ranked = z.detach().sort(-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    size = (_threshold15(ranked.cumsum(-1), ranked.square().cumsum(-1), count) <= ranked).sum(
        -1, keepdim=True
    )
    support = _support(z, ranked, size)
    inside = z.where(support, 0.0)
    threshold = _threshold15(
        inside.sum(-1, keepdim=True), inside.square().sum(-1, keepdim=True), support.sum(-1, keepdim=True)
    )
    return (z - threshold).where(support, 0.0).clamp_min(0.0).square()


def _threshold15(sums: Tensor, squares: Tensor, count: Tensor) -> Tensor:
    """τ for the `count` largest, given their sum and the sum of their squares."""
    mean = sums / count
    spread = squares - count * mean.square()
    return mean - ((1 - spread) / count).clamp_min(0.0).sqrt()


def _shifted(scores: Tensor, least: float) -> Tensor:
    """The scores with their largest at 0. Below `least` no region is in the support, and -inf would give NaN."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return (scores - scores.detach().amax(-1, keepdim=True)).clamp_min(least)


def _support(z: Tensor, ranked: Tensor, size: Tensor) -> Tensor:
    """Which of the scores `z` are among the `size` largest. Of NaN all are, so that their weights are NaN, too."""
    return ~(z < ranked.gather(-1, (size - 1).clamp_min(0)))
