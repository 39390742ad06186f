"""Terms on the attention weights that objectives may add."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from caption.decoders.base import Unrolled

Reduction = Literal["sum", "mean"]


def entropy(weights: Tensor) -> Tensor:
    """H[α] = −Σ_i α_i log α_i in nats over the last dimension; regions of weight 0 add 0, and no gradient."""
    weights = weights.float()
    return torch.special.entr(weights.clamp_min(torch.finfo(torch.float32).tiny)).sum(-1)


def doubly_stochastic(unrolled: Unrolled, regions: Reduction = "sum") -> Tensor:
    """Σ_i (1 − Σ_t α[t,i])² for each caption, (B, K): does every region get its share of looks (eq. 14)?

    Σ_t runs over real steps only. A caption of fewer steps than regions cannot reach 0: T looks spread over L
    regions leave L (1 − T/L)².

    Args:
        unrolled: from the decoder.
        regions: "sum" over the regions as in eq. 14, or their "mean" as in the authors' code.
    """
    totals = unrolled.unpack(unrolled.trace.weights.float()).sum(2)
    deviations = (1 - totals).square()
    return deviations.sum(-1) if regions == "sum" else deviations.mean(-1)
