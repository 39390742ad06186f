"""Self-attention over regions: each region attends to all regions."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from caption.encoders.refiners.attention_among_regions import AttentionLayers
from caption.encoders.refiners.base import EachView, at_least_one
from caption.encoders.refiners.positions import Positions
from caption.regions import Regions


class SelfAttentionRefiner(EachView):
    """x_0 = W a + p; x_n = x_(n-1) + MultiHead(LN(x_(n-1))); the result is LN(x_N).

    Multi-head attention is that of Vaswani et al. 2017, "Attention Is All You Need", section 3.2; for the place of
    LayerNorm see `AttentionLayers`. There is no feed-forward sublayer. Regions keep their grid; without positions,
    their order is ignored. Each view has its own weights.

    Args:
        size: length S of the new vectors; None = the length of the region vectors, without the first linear map W.
        heads: M; S must be divisible by it.
        layers: N.
        positions: the position encoding p; None = no encoding.
        dropout: on the output of each layer's attention.

    Raises:
        UserError: S cannot be divided by the heads or by the positions; `layers` or `size` is below 1.
    """

    def __init__(
        self,
        size: int | None = None,
        heads: int = 4,
        layers: int = 1,
        positions: Positions | None = None,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        at_least_one(layers=layers, size=1 if size is None else size)
        self.size = size
        self.heads = heads
        self.depth = layers
        self.positions = positions
        self.dropout = dropout

    def refined_size(self, region_size: int) -> int:
        return self.size or region_size

    def layers(self, region_size: int) -> nn.Module:
        size = self.refined_size(region_size)
        positions = copy.deepcopy(self.positions)
        if positions is not None:
            positions.build(size, self.heads)
        enter = nn.Identity() if self.size is None else nn.Linear(region_size, size)
        return _OneView(enter, positions, AttentionLayers(size, self.heads, self.depth, self.dropout))


class _OneView(nn.Module):
    """The layers for one view."""

    def __init__(self, enter: nn.Module, positions: Positions | None, layers: AttentionLayers) -> None:
        super().__init__()
        self.enter = enter
        self.positions = positions
        self.layers = layers

    def forward(self, regions: Regions) -> Tensor:
        x, biases = self.enter(regions.vectors), None
        if self.positions is not None:
            biases = self.positions.biases(regions.grid)
            if (places := self.positions.vectors(regions.grid, x)) is not None:
                x = x + places
        return self.layers(x, None, regions.mask, biases)
