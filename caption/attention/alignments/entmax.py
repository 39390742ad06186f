"""1.5-entmax: sparse weights as with sparsemax, but smoother (Peters et al. 2019).

It is computed exactly, by sorting, as in the paper's algorithm 2. The gradient is that of the formula for the regions
in the support, as in `sparsemax`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.alignments.sparsemax import in_support, shifted
from caption.attention.base import GridMemory, Query
from caption.attention.scored import Alignment
from caption.core.tensor_tree import TensorTree


class Entmax15(Alignment):
    """α-entmax with α = 1.5: between softmax and sparsemax (Peters et al. 2019, section 3)."""

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return entmax15(scores)


def entmax15(scores: Tensor) -> Tensor:
    """[e/2 − τ]₊² with τ such that the sum is 1.

    Args:
        scores: (..., L), -inf where masked.

    Returns:
        (..., L) in single precision at least.
    """
    z = shifted(scores, least=-4.0) / 2
    ranked = z.detach().sort(-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    size = (_threshold15(ranked.cumsum(-1), ranked.square().cumsum(-1), count) <= ranked).sum(
        -1, keepdim=True
    )
    support = in_support(z, ranked, size)
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
