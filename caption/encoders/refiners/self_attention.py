"""Self-attention over regions: each region attends to all regions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from caption.attention.maps import sum_of_penalties
from caption.attention.multi_head import HeadGates
from caption.attention.options import at_least_one
from caption.attention.scaled_dot_product import ABSOLUTE
from caption.core.errors import UserError
from caption.core.regions import Regions
from caption.encoders.refiners.attention_among_regions import AttentionLayers, RegionAttention
from caption.encoders.refiners.base import EachView
from caption.encoders.refiners.positions import Positions


class SelfAttentionRefiner(EachView):
    """x_0 = W a + p; x_n = x_(n-1) + MultiHead(LN(x_(n-1))); the result is LN(x_N).

    Multi-head attention is that of Vaswani et al. 2017, "Attention Is All You Need", section 3.2; for the position of
    LayerNorm see `AttentionLayers`. There is no feed-forward sublayer. Regions keep their grid; without positions,
    their order is ignored. Each view has its own weights.

    Args:
        size: length S of the new vectors; None = the length of the region vectors, without the first linear map W.
        heads: M; S must be divisible by it.
        layers: N.
        positions: the position encoding p; None = no encoding.
        dropout: on the output of each layer's attention.
        gates: learned gates that can switch heads off, separate for each layer; the loss term
            `caption.objectives.RefinerPenalty` penalises the number of open gates. None = all heads are read.
        kept_heads: for each view and layer, the numbers of the heads that remain of M after closed heads have been
            removed (`caption.attention.remove_closed_heads`); None = all.

    Raises:
        UserError: S is not divisible by the heads or by the positions; `layers` or `size` is below 1; `kept_heads`
            does not list heads of each layer of each view.
    """

    def __init__(
        self,
        size: int | None = None,
        heads: int = 4,
        layers: int = 1,
        positions: Positions | None = None,
        dropout: float = 0.1,
        gates: HeadGates | None = None,
        kept_heads: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> None:
        super().__init__()
        at_least_one(self, layers=layers)
        self.size = size
        self.heads = heads
        self.depth = layers
        self.positions = positions
        self.dropout = dropout
        self.gates = gates
        self.kept_heads = kept_heads

    def build(self, region_sizes: tuple[int, ...]) -> None:
        super().build(region_sizes)
        if self.kept_heads is None:
            return
        layers = [layer for of_view in self.self_attentions() for layer in of_view]
        kept = [[*heads] for of_view in self.kept_heads for heads in of_view]
        if len(kept) != len(layers) or not all(heads and {*heads} <= {*range(self.heads)} for heads in kept):
            raise UserError(
                f"kept_heads {kept} must list one or more of {self.heads} heads for each of {len(layers)} layers of "
                "self-attention: take the configuration of the model whose heads were removed"
            )
        for layer, heads in zip(layers, kept, strict=True):
            layer.keep(heads)

    def remove_closed_heads(self) -> dict[str, tuple[int, int]]:
        """Remove the heads whose gates are 0 in evaluation; see `caption.attention.remove_closed_heads`."""
        if self.gates is None:
            return {}
        counts = {}
        for view, layers in enumerate(self.self_attentions()):
            for number, layer in enumerate(layers):
                if layer.gates is not None:
                    name, before = f"views.{view}.layers.attend.{number}", layer.heads
                    counts[name] = (layer.keep_open(layer.gates), before)
        self.gates = None
        self.kept_heads = [[layer.kept or [] for layer in of_view] for of_view in self.self_attentions()]
        self.revise(gates=None, kept_heads=self.kept_heads)
        return counts

    def refined_size(self, region_size: int) -> int:
        return self.size or region_size

    def layers(self, region_size: int) -> nn.Module:
        size = self.refined_size(region_size)
        positions = copy.deepcopy(self.positions)
        if positions is not None:
            positions.build(size, self.heads)
        enter = nn.Identity() if self.size is None else nn.Linear(region_size, size)
        return _OneView(enter, positions, self.attention_layers(size))

    def attention_layers(self, size: int) -> AttentionLayers:
        """The layers for one view, with vectors of this length S."""
        return AttentionLayers(size, self.heads, self.depth, self.dropout, self.gates)

    def penalty(self) -> Tensor | None:
        """The expected number of open heads of all layers and views; None without gates."""
        gates = [layer.gates for layers in self.self_attentions() for layer in layers]
        return sum_of_penalties(gate.expected_open() for gate in gates if gate is not None)

    def self_attentions(self) -> Sequence[Sequence[RegionAttention]]:
        views = cast("Sequence[_OneView]", self.views)
        return [cast("Sequence[RegionAttention]", view.layers.attend) for view in views]


class _OneView(nn.Module):
    """The layers for one view."""

    def __init__(self, enter: nn.Module, positions: Positions | None, layers: AttentionLayers) -> None:
        super().__init__()
        self.enter = enter
        self.positions = positions
        self.layers = layers

    def forward(self, regions: Regions) -> Tensor:
        x, relative = self.enter(regions.vectors), ABSOLUTE
        if self.positions is not None:
            relative = self.positions.relative(regions.grid)
            if (vectors := self.positions.vectors(regions.grid, x)) is not None:
                x = x + vectors
        return self.layers(x, None, regions.mask, relative)
