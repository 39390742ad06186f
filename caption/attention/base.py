"""What every attention mechanism offers: weigh the regions, then read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.errors import UserError
from caption.parts import Part
from caption.regions import Regions, Views, check_views
from caption.result import WeightProperties
from caption.tensor_tree import TensorTree


class Query(NamedTuple):
    """What a decoder asks the attention with at one step: K queries share each of B images."""

    hidden: Tensor
    """(B, K, H) the LSTM state h that the attention reads: h[t-1] in the paper's decoder, h[t] where a decoder
    attends after its update."""
    cell: Tensor | None = None
    """(B, K, H) the cell c of the same time as `hidden`; None for decoders without one."""
    word: Tensor | None = None
    """(B, K, E) the vector Ey[t-1] of the word just fed."""
    previous: Tensor | None = None
    """(B, K, H) h[t-1], where `hidden` is h[t]; else None."""


class QuerySizes(NamedTuple):
    """Lengths of the vectors in a `Query`."""

    hidden: int
    """H."""
    word: int = 0
    """E."""


class Weighed(NamedTuple):
    """How much each region weighs at one step: similarity and alignment, before anything is read."""

    maps: TensorTree
    """(B, K, L) weights; or a named tuple of them for mechanisms with several maps: heads (B, K, M, L), hops, levels.
    The regions stand in the last dimension."""
    state: TensorTree = None
    """What the mechanism has to keep of this step, beside the maps."""


class Reading(NamedTuple):
    """What was read with the maps."""

    context: Tensor
    """(B, K, D) the vector z."""
    location: Tensor | None = None
    """Where a mechanism that chooses has looked: (B, K) int64 a region, -1 where the expectation over all regions was
    read; or (B, K, 2) float x and y of a point, 0 to 1 across the grid, NaN where no point was chosen."""
    log_prob: Tensor | None = None
    """(B, K) the log-density of the sampled location, 0 where nothing was sampled; None if nothing ever is."""


class AttentionOutput(NamedTuple):
    """The result of attending once: B images, K queries each, L regions."""

    context: Tensor
    """(B, K, D) the vector z."""
    weights: Tensor
    """(B, K, L) the summary of the maps that a heatmap shows, over the regions of the first view; 0 where masked.
    `Attention.properties` declares what holds of it."""
    maps: TensorTree
    """All maps, see `Weighed.maps`."""
    state: TensorTree = None
    """What the mechanism carries to the next step; tensors (B, K, ...)."""
    location: Tensor | None = None
    """See `Reading`."""
    log_prob: Tensor | None = None
    """See `Reading`."""


class Attention(Part, nn.Module):
    """A mechanism that decides, for each query, what to read from an image's regions.

    The steps are *weigh* (similarity, then alignment: maps) and *read* (usually a weighted sum: the context). Between
    them the maps pass `self.maps`, a module that changes nothing. A forward hook there sees every map, and may
    return another one, which is then read instead: this is how maps are forced, masked, permuted and recorded.

    No state is kept on the module between calls. What a mechanism carries from step to step travels in
    `AttentionOutput.state`, which search reorders with its hypotheses.
    """

    context_size: int
    """Length D of the context vector; known after `build`."""
    properties: WeightProperties = WeightProperties()
    """What holds of the summary weights."""
    several_views: bool = False
    """Whether it takes images with several grids."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Identity()

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        """Create the weights. Called once.

        Args:
            region_sizes: length D of the region vectors of each view.
            query_sizes: lengths of the query's vectors.

        Raises:
            UserError: the mechanism does not take that many views.
        """
        raise NotImplementedError

    def project(self, views: Views) -> TensorTree:
        """Compute what depends on the image alone, once per image: keys, values. The result is the memory."""
        raise NotImplementedError

    def start(self, memory: TensorTree, hypotheses: int) -> TensorTree:
        """What the mechanism carries into the first step, tensors (B, K, ...) with K = `hypotheses`, or None."""
        return None

    def weigh(self, query: Query, memory: TensorTree, state: TensorTree) -> Weighed:
        """The maps of a step. No region is read yet."""
        raise NotImplementedError

    def read(
        self, maps: TensorTree, query: Query, memory: TensorTree, weighed: Weighed | None = None
    ) -> Reading:
        """The context under some maps: those that were weighed, or others of the same structure.

        A mechanism that samples draws here.

        Args:
            maps: see `Weighed.maps`.
            query: as for `weigh`.
            memory: as for `weigh`.
            weighed: of this step; its maps differ from `maps` where a hook has changed them. None = read the maps as
                they are, and sample nothing.
        """
        raise NotImplementedError

    def carry(self, maps: TensorTree, weighed: Weighed) -> TensorTree:
        """What goes to the next step, tensors (B, K, ...), given the maps that were read."""
        return weighed.state

    def summary(self, maps: TensorTree) -> Tensor:
        """(B, K, L) the weights that a heatmap shows; the maps themselves, if they are one tensor (B, K, L)."""
        return maps

    def grids(self, views: Sequence[tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
        """The grid (rows, cols) that each map lies on, by the map's name, for images with these grids.

        Maps that are one tensor are called "weights". A map that is not over regions is not named here, and
        is left alone by edits and figures.
        """
        return {"weights": views[0]}

    def penalty(self, maps: Mapping[str, Tensor]) -> Tensor | None:
        """A quantity that training may add to the loss, such as heads that look alike; None for most mechanisms.

        Args:
            maps: (N, ..., L) by name, of all real steps of a batch; see `named_maps`.
        """
        return None

    def forward(self, query: Query, memory: TensorTree, state: TensorTree = None) -> AttentionOutput:
        """Attend: weigh, let hooks see the maps, read.

        Args:
            query: K queries for each image.
            memory: of the B images, from `project`.
            state: from `start` or the last output.
        """
        weighed = self.weigh(query, memory, state)
        maps = self.maps(weighed.maps)
        reading = self.read(maps, query, memory, weighed)
        return AttentionOutput(
            reading.context,
            self.summary(maps),
            maps,
            self.carry(maps, weighed),
            reading.location,
            reading.log_prob,
        )


def one_view(attention: nn.Module, views: Views | tuple[int, ...]) -> None:
    """Raise a `UserError` unless there is exactly one view, with a real region in every image.

    Args:
        attention: the mechanism, for the message.
        views: the views, or their region sizes.
    """
    if len(views) != 1:
        raise UserError(
            f"{type(attention).__name__} attends to one grid, and the encoder gives {len(views)}: take an encoder with "
            "one grid, or a mechanism whose documentation says that it takes several views"
        )
    _check(views)


def two_views(attention: nn.Module, views: Views | tuple[int, ...]) -> None:
    """Like `one_view`, for mechanisms that attend to two."""
    if len(views) != 2:
        raise UserError(
            f"{type(attention).__name__} attends to two grids, and the encoder gives {len(views)}: take an encoder "
            "with two, such as SmallCNN with `views: 2` or TorchvisionEncoder with two layers"
        )
    _check(views)


def _check(views: Views | tuple[int, ...]) -> None:
    """Check views; sizes need no check."""
    check_views(tuple(view for view in views if isinstance(view, Regions)))


def named_maps(maps: TensorTree) -> dict[str, Tensor]:
    """Maps by name; a single tensor is called "weights"."""
    return {"weights": maps} if isinstance(maps, Tensor) else dict(maps._asdict())


def with_maps(maps: TensorTree, named: Mapping[str, Tensor]) -> TensorTree:
    """The same structure with other tensors, by the names of `named_maps`; those not named stay."""
    return named.get("weights", maps) if isinstance(maps, Tensor) else maps._replace(**named)


def chosen(location: Tensor) -> Tensor:
    """(B, K) bool: where a location was chosen; see `Reading.location`."""
    return ~torch.isnan(location).any(-1) if location.is_floating_point() else location >= 0
