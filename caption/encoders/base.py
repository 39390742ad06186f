"""What every encoder offers: an image becomes one or more grids of region vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from caption.parts import Part
from caption.regions import Regions, Views

PIECE = 4
"""Images that a CPU encodes at once without gradients; as many as there are threads, if those are more. The outputs of
larger pieces are so large that the C library returns their memory to the system after every layer, which can take as
long as the arithmetic."""


class Encoder(Part, nn.Module):
    """A CNN that keeps its spatial grid.

    A frozen encoder computes no gradients and stays in evaluation mode whatever its owner does, so that the
    running statistics of its BatchNorm layers do not drift.
    """

    region_sizes: tuple[int, ...]
    """Length D of the region vectors of each view."""
    frozen: bool = False
    compiled: bool = False
    """Whether `features` is compiled with torch.compile when it first runs."""

    def features(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Normalised images (B, 3, H, W) float -> a feature map (B, D, rows, cols), or one for each view."""
        raise NotImplementedError

    def normalise(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) uint8 -> float, in the scale the encoder was trained with."""
        raise NotImplementedError

    def load_pretrained(self) -> None:
        """Load the weights that the configuration names, if it names any.

        Apart from construction, because a checkpoint brings its own: restoring one must not need the file.
        """

    def forward(self, images: Tensor) -> Views:
        """Images (B, 3, H, W) uint8, as the image transform makes them -> their regions, view by view."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            in_pieces = images.device.type == "cpu" and not torch.is_grad_enabled() and not self.training
            pieces = images.split(max(PIECE, torch.get_num_threads())) if in_pieces else [images]
            features = compiled_features(type(self).features) if self.compiled else type(self).features
            encoded = [features(self, self.normalise(piece)) for piece in pieces]
            by_piece = [maps if isinstance(maps, tuple) else (maps,) for maps in encoded]
            views = [torch.cat(maps) for maps in zip(*by_piece, strict=True)]
        return tuple(
            Regions(maps.flatten(2).transpose(1, 2), (maps.shape[2], maps.shape[3])) for maps in views
        )

    def freeze(self, frozen: bool = True) -> None:
        """Freeze or unfreeze parameters, BatchNorm statistics and dropout.

        Unfreezing also switches to training mode. The encoder does not know its owner's mode, and Lightning restores
        modes after validation without a call.
        """
        unfreezing = self.frozen and not frozen
        self.frozen = frozen
        self.requires_grad_(not frozen)
        self.train(unfreezing or self.training)

    def train(self, mode: bool = True) -> Encoder:
        """Training or evaluation mode; a frozen encoder stays in evaluation mode."""
        return super().train(mode and not self.frozen)


@cache
def compiled_features(features: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`features` of a class, compiled. A compiled method of one encoder would keep that one's weights in its copies."""
    return torch.compile(features)
