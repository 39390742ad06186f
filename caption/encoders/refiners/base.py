"""The interface of refiners, which map regions to regions between the encoder and the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from caption.attention.maps import sum_of_penalties
from caption.core.errors import UserError
from caption.core.parts import Part
from caption.core.regions import Views, check_views

if TYPE_CHECKING:
    from caption.encoders.refiners.attention_among_regions import RegionAttention


class Refiner(Part, nn.Module):
    """Base class of refiners. A refiner gets whole grids, so it may attend among regions or change the grids.

    Output view n covers the same part of the image as input view n.
    """

    region_sizes: tuple[int, ...]
    """Length D' of the vectors of each output view; known after `build`."""

    def build(self, region_sizes: tuple[int, ...]) -> None:
        """Create the weights for views with vectors of these lengths D. Called once.

        Raises:
            UserError: the refiner does not take that many views, or an option does not fit these lengths.
        """
        raise NotImplementedError

    def grids(self, grids: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """(rows, cols) of the output views, for input views with these grids; the same by default."""
        return grids

    def forward(self, views: Views) -> Views:
        """Views, possibly in the half precision of stored regions -> views."""
        raise NotImplementedError

    def penalty(self) -> Tensor | None:
        """A penalty that training may add to the loss, such as the number of open heads; None for most refiners."""
        return None

    def self_attentions(self) -> Sequence[Sequence[RegionAttention]] | None:
        """For each view, the layers of self-attention that mix its regions, in order.

        None if regions are also mixed in another way, so that the weights of these layers do not describe all of it.
        """
        return None


class EachView(Refiner):
    """Base class of refiners that map each view separately, with separate weights, to the same grid."""

    def layers(self, region_size: int) -> nn.Module:
        """The module for one view with vectors of this length D: `Regions` -> vectors (B, L, D')."""
        raise NotImplementedError

    def refined_size(self, region_size: int) -> int:
        """D' for vectors of length D; the same by default."""
        return region_size

    def build(self, region_sizes: tuple[int, ...]) -> None:
        self.region_sizes = tuple(map(self.refined_size, region_sizes))
        self.views = nn.ModuleList(map(self.layers, region_sizes))

    def forward(self, views: Views) -> Views:
        return tuple(
            view._replace(vectors=refine(view))
            for refine, view in zip(self.views, prepared(views, self), strict=True)
        )


class Refiners(Refiner):
    """Several refiners, applied in order.

    Args:
        refiners: at least one.

    Raises:
        UserError: the list is empty.
    """

    def __init__(self, refiners: list[Refiner]) -> None:
        super().__init__()
        if not refiners:
            raise UserError("refiners is an empty list: name at least one refiner")
        self.refiners: Sequence[Refiner] = nn.ModuleList(refiners)  # type: ignore[assignment]

    def build(self, region_sizes: tuple[int, ...]) -> None:
        for refiner in self.refiners:
            refiner.build(region_sizes)
            region_sizes = refiner.region_sizes
        self.region_sizes = region_sizes

    def grids(self, grids: list[tuple[int, int]]) -> list[tuple[int, int]]:
        for refiner in self.refiners:
            grids = refiner.grids(grids)
        return grids

    def forward(self, views: Views) -> Views:
        for refiner in self.refiners:
            views = refiner(views)
        return views

    def penalty(self) -> Tensor | None:
        return sum_of_penalties(refiner.penalty() for refiner in self.refiners)

    def self_attentions(self) -> Sequence[Sequence[RegionAttention]] | None:
        chains = []
        for refiner in self.refiners:
            if (chain := refiner.self_attentions()) is None:
                return None
            chains.append(chain)
        return [[layer for layers in of_view for layer in layers] for of_view in zip(*chains, strict=True)]


def prepared(views: Views, refiner: nn.Module) -> Views:
    """Check views (`check_views`), set masked regions to 0, and convert the vectors to the precision of the refiner's
    weights; without weights, to single precision at least."""
    check_views(views)
    weight = next(refiner.parameters(), None)
    # Stored regions are in half precision.
    dtype = torch.promote_types(views[0].vectors.dtype, torch.float32) if weight is None else weight.dtype
    return tuple(view._replace(vectors=zero_masked(view.vectors.to(dtype), view.mask)) for view in views)


def zero_masked(vectors: Tensor, mask: Tensor | None) -> Tensor:
    """Vectors (B, L, D) with zeros where `mask` (B, L) is False."""
    return vectors if mask is None else vectors.masked_fill(~mask[..., None], 0)


def to_map(vectors: Tensor, grid: tuple[int, int]) -> Tensor:
    """Vectors (B, L, D) -> feature map (B, D, rows, cols)."""
    return vectors.mT.unflatten(-1, grid)


def to_vectors(feature_map: Tensor) -> Tensor:
    """Feature map (B, D, rows, cols) -> vectors (B, L, D)."""
    return feature_map.flatten(2).mT


def require_views(refiner: Refiner, region_sizes: Sequence[int], most: int | None = None) -> None:
    """Raise a `UserError` for a single view, or for more than `most`."""
    views = len(region_sizes)
    if views < 2 or (most is not None and views > most):
        raise UserError(
            f"{type(refiner).__name__} takes two views{' or more' if most is None else ''}, but gets {views}: list the "
            "layers in `layer` of caption.encoders.TorchvisionEncoder, or the encoders in `encoders` of "
            "caption.encoders.SeveralEncoders"
        )
