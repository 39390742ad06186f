"""Dual attention: regions attend to regions, channels to channels, and both results are summed."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.options import at_least_one
from caption.core.regions import Regions
from caption.encoders.refiners.base import EachView


class DualAttentionRefiner(EachView):
    """(α softmax(B Cᵀ) V + A) + (β softmax(AᵀA) Aᵀ + Aᵀ)ᵀ, with A the regions (L, D) and B, C, V linear maps of them.

    Fu et al. 2019, "Dual Attention Network for Scene Segmentation", eqs. 1 and 2 (position) and 3 and 4 (channel). B
    and C have D/r columns. α and β are learned and 0 before training, when the result is 2A. The authors' convolutions
    before and after the module are left out. Each view has its own weights.

    Args:
        reduction: r.

    Raises:
        UserError: `reduction` is below 1.
    """

    def __init__(self, reduction: int = 8) -> None:
        super().__init__()
        at_least_one(self, reduction=reduction)
        self.reduction = reduction

    def layers(self, region_size: int) -> nn.Module:
        return _PositionAndChannel(region_size, max(region_size // self.reduction, 1))


class _PositionAndChannel(nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.queries = nn.Linear(size, inner)
        self.keys = nn.Linear(size, inner)
        self.values = nn.Linear(size, size)
        self.alpha = nn.Parameter(torch.zeros(()))
        self.beta = nn.Parameter(torch.zeros(()))

    def forward(self, regions: Regions) -> Tensor:
        vectors = regions.vectors
        allowed = None if regions.mask is None else regions.mask[:, None]
        position = functional.scaled_dot_product_attention(
            self.queries(vectors), self.keys(vectors), self.values(vectors), allowed, scale=1.0
        )
        channels = vectors.mT  # (B, D, L), zero where masked, so that masked regions add nothing to AᵀA
        channel = functional.scaled_dot_product_attention(channels, channels, channels, scale=1.0).mT
        return (self.alpha * position + vectors) + (self.beta * channel + vectors)
