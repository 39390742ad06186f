"""Measures of attention weights: their entropy and their change between maps.

They take tensors (..., L); `entropy` also takes the properties of the weights (`Attention.properties`,
`Caption.properties`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.maps import single_precision
from caption.core.regions import WeightProperties

USUAL = WeightProperties()


def entropy(weights: Tensor, properties: WeightProperties = USUAL) -> Tensor:
    """H[α] = −Σ_i α_i log α_i in nats over the last dimension: 0 for a single region, log L for uniform weights.

    Weights that do not sum to one, or that may be negative, are first normalised to |α_i| / Σ_j |α_j|. The share of a
    sentinel, 1 − Σ_i α_i, is one more outcome. Weights of 0 contribute 0 and no gradient.

    Args:
        weights: (..., L); half precision is converted to single.
        properties: of the weights.
    """
    weights = single_precision(weights)
    if properties.sentinel:
        weights = torch.cat((weights, 1 - weights.sum(-1, keepdim=True)), -1)
    elif properties.signed or not properties.sums_to_one:
        weights = weights.abs()
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    return torch.special.entr(weights.clamp_min(torch.finfo(weights.dtype).tiny)).sum(-1)


def change(weights: Tensor, before: Tensor) -> Tensor:
    """½ Σ_i |α_i − α'_i| over the last dimension: the share of the attention that moved between two maps, 0 to 1."""
    return (weights - before).abs().sum(-1) / 2
