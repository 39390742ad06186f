"""Cross-attention between two grids: the regions of the first attend to those of the second."""

from __future__ import annotations

from torch import nn

from caption.attention.options import at_least_one
from caption.core.regions import Views
from caption.encoders.refiners.attention_among_regions import AttentionLayers
from caption.encoders.refiners.base import Refiner, prepared, require_views


class CrossAttentionRefiner(Refiner):
    """x_0 = W a; x_n = x_(n-1) + MultiHead(LN(x_(n-1)), LN(V b)); the result is LN(x_N) on the grid of a.

    The regions a of the first view attend to the regions b of the second: two scales of one encoder, or two encoders.
    Multi-head attention between two sets is that of Vaswani et al. 2017, "Attention Is All You Need", sections 3.2.2
    and 3.2.3; Chen et al. 2021, "CrossViT", section 3.3, use it between two scales of an image. LayerNorm is placed as
    in `SelfAttentionRefiner`. The result is one view.

    Args:
        size: length S of the new vectors; None = the length of the first view's vectors, without the linear map W.
        heads: M; S must be divisible by it.
        layers: N.
        dropout: on the output of each layer's attention.

    Raises:
        UserError: `layers` or `size` is below 1; when built for a number of views other than two, or with an S that is
            not divisible by M.
    """

    def __init__(
        self, size: int | None = None, heads: int = 4, layers: int = 1, dropout: float = 0.1
    ) -> None:
        super().__init__()
        at_least_one(self, layers=layers)
        self.size = size
        self.heads = heads
        self.depth = layers
        self.dropout = dropout

    def build(self, region_sizes: tuple[int, ...]) -> None:
        require_views(self, region_sizes, most=2)
        first, second = region_sizes
        size = self.size or first
        self.region_sizes = (size,)
        self.enter = nn.Identity() if self.size is None else nn.Linear(first, size)
        self.enter_other = nn.Sequential(nn.Linear(second, size), nn.LayerNorm(size))
        self.layers = AttentionLayers(size, self.heads, self.depth, self.dropout)

    def grids(self, grids: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return grids[:1]

    def forward(self, views: Views) -> Views:
        first, second = prepared(views, self)
        vectors = self.layers(self.enter(first.vectors), self.enter_other(second.vectors), second.mask)
        return (first._replace(vectors=vectors),)
