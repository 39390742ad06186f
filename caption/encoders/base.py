"""What every encoder offers: an image becomes a grid of region vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from caption.parts import Part
from caption.regions import Regions as Regions

PIECE = 4
"""Images that a CPU without gradients encodes at once, or as many as it has threads. For more, the layers' outputs are
so large that the C library gives each back to the system and asks for it anew, which can take as long as the
arithmetic."""


class Encoder(Part, nn.Module):
    """A CNN that keeps its spatial grid.

    A frozen encoder computes no gradients and stays in evaluation mode whatever its owner does, so that the
    running statistics of its BatchNorm layers do not drift.
    """

    region_size: int
    """Length D of a region vector."""
    frozen: bool = False
    compiled: bool = False
    """Whether torch.compile makes faster code of `features` when it first runs."""

    def features(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, H, W) float -> feature map (B, D, rows, cols)."""
        raise NotImplementedError

    def normalise(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) uint8 -> float, in the scale the encoder was trained with."""
        raise NotImplementedError

    def load_pretrained(self) -> None:
        """Load the weights that the configuration names, if it names any.

        Apart from construction, because a checkpoint brings its own: restoring one must not need the file.
        """

    def forward(self, images: Tensor) -> Regions:
        """Images (B, 3, H, W) uint8, as the image transform makes them -> their regions."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            in_pieces = images.device.type == "cpu" and not torch.is_grad_enabled() and not self.training
            pieces = images.split(max(PIECE, torch.get_num_threads())) if in_pieces else [images]
            features = compiled_features(type(self).features) if self.compiled else type(self).features
            maps = torch.cat([features(self, self.normalise(piece)) for piece in pieces])
        return Regions(maps.flatten(2).transpose(1, 2), (maps.shape[2], maps.shape[3]))

    def freeze(self, frozen: bool = True) -> None:
        """Freeze, or thaw: parameters, BatchNorm statistics and dropout.

        Who thaws an encoder wants it to learn, so thawing puts it in training mode. It cannot return to the mode of
        its owner, which it does not know: Lightning, for one, restores modes after validation without a call.
        """
        thawing = self.frozen and not frozen
        self.frozen = frozen
        self.requires_grad_(not frozen)
        self.train(thawing or self.training)

    def train(self, mode: bool = True) -> Encoder:
        """Training or evaluation mode; a frozen encoder stays in evaluation mode."""
        return super().train(mode and not self.frozen)


@cache
def compiled_features(features: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`features` of a class, compiled. Not that of an encoder: its copies would go on to use its weights."""
    return torch.compile(features)
