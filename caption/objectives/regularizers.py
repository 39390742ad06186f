"""Terms on the attention weights that objectives may add."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.decoders.base import Unrolled


def entropy(weights: Tensor) -> Tensor:
    """H[α] = −Σ_i α_i log α_i in nats over the last dimension; regions of weight 0 add 0, and no gradient."""
    weights = weights.float()
    return torch.special.entr(weights.clamp_min(torch.finfo(torch.float32).tiny)).sum(-1)


def doubly_stochastic(unrolled: Unrolled) -> Tensor:
    """Σ_i (1 − Σ_t α[t,i])² for each caption, (B, K): does every region get its share of looks?

    Σ_t runs over real steps only. A caption of fewer steps than regions cannot reach 0: T looks spread over L
    regions leave L (1 − T/L)².
    """
    totals = unrolled.unpack(unrolled.trace.weights.float()).sum(2)
    return (1 - totals).square().sum(-1)
