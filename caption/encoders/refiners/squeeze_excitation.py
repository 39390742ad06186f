"""Squeeze-and-excitation: channels are scaled by weights computed from the whole image."""

from __future__ import annotations

from torch import Tensor, nn

from caption.attention.options import at_least_one
from caption.core.regions import Regions, mean_region
from caption.encoders.refiners.base import EachView


class SqueezeExcitationRefiner(EachView):
    """z = mean_i a_i; s = σ(W_2 ReLU(W_1 z)); a'_i = s ⊙ a_i.

    Hu, Shen and Sun 2018, "Squeeze-and-Excitation Networks", eqs. 2 to 4. W_1 has D/r rows; neither has a bias. Each
    view has its own weights.

    Args:
        reduction: r.

    Raises:
        UserError: `reduction` is below 1.
    """

    def __init__(self, reduction: int = 16) -> None:
        super().__init__()
        at_least_one(self, reduction=reduction)
        self.reduction = reduction

    def layers(self, region_size: int) -> nn.Module:
        return _Excitation(bottleneck(region_size, self.reduction))


class _Excitation(nn.Module):
    def __init__(self, excite: nn.Module) -> None:
        super().__init__()
        self.excite = excite

    def forward(self, regions: Regions) -> Tensor:
        return self.excite(mean_region(regions)).sigmoid() * regions.vectors


def bottleneck(size: int, reduction: int) -> nn.Sequential:
    """W_2 ReLU(W_1 z) on vectors of length `size`, with `size` / `reduction` hidden units, at least one."""
    inner = max(size // reduction, 1)
    return nn.Sequential(nn.Linear(size, inner, bias=False), nn.ReLU(), nn.Linear(inner, size, bias=False))
