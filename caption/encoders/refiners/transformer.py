"""The Transformer's encoder over regions: layers of self-attention, each followed by a feed-forward network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from caption.attention.multi_head import HeadGates
from caption.encoders.refiners.attention_among_regions import AttentionLayers
from caption.encoders.refiners.positions import Positions
from caption.encoders.refiners.self_attention import SelfAttentionRefiner


class TransformerRefiner(SelfAttentionRefiner):
    """x_0 = W a + p; x' = x_(n-1) + MultiHead(LN(x_(n-1))); x_n = x' + W_2 max(0, W_1 LN(x') + b_1) + b_2; LN(x_N).

    The encoder of Vaswani et al. 2017, "Attention Is All You Need", sections 3.1 to 3.3, with the layer normalisation
    first (Xiong et al. 2020, table 1), as in `caption.decoders.TransformerDecoder`. With that decoder it makes a full
    Transformer. Regions keep their grid; without positions, their order is ignored. Each view has its own weights.

    Args:
        size: length S of the new vectors; None = the length of the region vectors, without the first linear map W.
        heads: M; S must be divisible by it.
        layers: N.
        inner_size: width of the feed-forward networks.
        positions: the position encoding p; None = no encoding.
        dropout: on the output of each part, and inside the feed-forward networks.
        gates: of the heads, see `SelfAttentionRefiner`.
        kept_heads: see `SelfAttentionRefiner`.

    Raises:
        UserError: S is not divisible by the heads or by the positions; `layers`, `size` or `inner_size` is below 1.
    """

    def __init__(
        self,
        size: int | None = None,
        heads: int = 8,
        layers: int = 2,
        inner_size: int = 1024,
        positions: Positions | None = None,
        dropout: float = 0.1,
        gates: HeadGates | None = None,
        kept_heads: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> None:
        super().__init__(size, heads, layers, positions, dropout, gates, kept_heads)
        self.inner_size = inner_size

    def attention_layers(self, size: int) -> AttentionLayers:
        return TransformerLayers(size, self.heads, self.depth, self.dropout, self.inner_size, self.gates)


class TransformerLayers(AttentionLayers):
    """`AttentionLayers` with a feed-forward network after each attention."""

    def __init__(
        self,
        size: int,
        heads: int,
        depth: int,
        dropout: float,
        inner_size: int,
        gates: HeadGates | None = None,
    ) -> None:
        super().__init__(size, heads, depth, dropout, gates)
        self.inner_norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(depth))
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Linear(size, inner_size), nn.ReLU(), self.dropout, nn.Linear(inner_size, size))
            for _ in range(depth)
        )

    def layer(self, number: int, x: Tensor, *attended: Any) -> Tensor:
        x = super().layer(number, x, *attended)
        return x + self.dropout(self.inner[number](self.inner_norms[number](x)))
