"""A linear layer, applied to each region."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from caption.core.regions import Views
from caption.encoders.refiners.attention_among_regions import RegionAttention
from caption.encoders.refiners.base import Refiner


class LinearRefiner(Refiner):
    """dropout(ReLU(W LayerNorm(a) + b)) for each region, which adapts a frozen encoder's features to the task.

    A smaller D' also makes every product with a region vector in the decoder cheaper. Each view has its own weights.

    Args:
        size: D'.
        dropout: on the result.
    """

    def __init__(self, size: int = 512, dropout: float = 0.5) -> None:
        super().__init__()
        self.size = size
        self.dropout = dropout

    def build(self, region_sizes: tuple[int, ...]) -> None:
        self.region_sizes = (self.size,) * len(region_sizes)
        layers = [self._layers(region_size) for region_size in region_sizes]
        self.layers = layers[0]
        self.layers_of_others = nn.ModuleList(layers[1:])

    def _layers(self, region_size: int) -> nn.Sequential:
        return nn.Sequential(
            nn.LayerNorm(region_size), nn.Linear(region_size, self.size), nn.ReLU(), nn.Dropout(self.dropout)
        )

    def forward(self, views: Views) -> Views:
        dtype = next(self.parameters()).dtype  # stored regions are in half precision
        layers = (self.layers, *self.layers_of_others)
        return tuple(
            view._replace(vectors=refine(view.vectors.to(dtype)))
            for refine, view in zip(layers, views, strict=True)
        )

    def self_attentions(self) -> Sequence[Sequence[RegionAttention]]:
        return [()] * len(self.region_sizes)  # regions are not mixed
