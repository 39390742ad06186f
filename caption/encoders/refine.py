"""Region refiners: what becomes of the encoder's regions before the decoder sees them. Trained with the decoder."""

from __future__ import annotations

from torch import Tensor, nn

from caption.parts import Part


class Refiner(Part, nn.Module):
    """Maps region vectors to region vectors, (B, L, D) -> (B, L, D')."""

    region_size: int
    """D', known after `build`."""

    def build(self, region_size: int) -> None:
        """Create the weights for regions of `region_size` numbers. Called once."""
        raise NotImplementedError

    def forward(self, regions: Tensor) -> Tensor:
        """(B, L, D), perhaps in the half precision they were stored with -> (B, L, D')."""
        raise NotImplementedError


class LinearRefiner(Refiner):
    """dropout(ReLU(W LayerNorm(a) + b)) for each region: fits a frozen encoder's features to the task.

    Every product with a region vector in the decoder gets cheaper with D', too.

    Args:
        size: D'.
        dropout: on the result.
    """

    def __init__(self, size: int = 512, dropout: float = 0.5) -> None:
        super().__init__()
        self.region_size = size
        self.dropout = dropout

    def build(self, region_size: int) -> None:
        self.layers = nn.Sequential(
            nn.LayerNorm(region_size),
            nn.Linear(region_size, self.region_size),
            nn.ReLU(),
            nn.Dropout(self.dropout),
        )

    def forward(self, regions: Tensor) -> Tensor:
        # Stored regions are in half precision.
        return self.layers(regions.to(next(self.parameters()).dtype))
