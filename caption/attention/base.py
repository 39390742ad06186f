"""The interface of attention mechanisms: weigh the regions, then read them."""

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
    """The decoder's input to the attention at one step: K queries for each of B images."""

    hidden: Tensor
    """(B, K, H) the LSTM state h that the attention reads: h[t-1] in the paper's decoder, h[t] where a decoder
    attends after its update."""
    cell: Tensor | None = None
    """(B, K, H) the cell c of the same time as `hidden`; None for decoders without one."""
    word: Tensor | None = None
    """(B, K, E) the vector Ey[t-1] of the previous word."""
    previous: Tensor | None = None
    """(B, K, H) h[t-1], where `hidden` is h[t]; else None."""


class QuerySizes(NamedTuple):
    """Lengths of the vectors in a `Query`."""

    hidden: int
    """H."""
    word: int = 0
    """E."""


class Weighed(NamedTuple):
    """The attention weights of one step, computed by similarity and alignment before the regions are read."""

    maps: TensorTree
    """(B, K, L) weights; or a named tuple of them for mechanisms with several maps: heads (B, K, M, L), hops, levels.
    The last dimension counts the regions."""
    state: TensorTree = None
    """Other values of this step that `read` or `carry` needs."""


class Reading(NamedTuple):
    """The result of reading the regions with the maps."""

    context: Tensor
    """(B, K, D) the vector z."""
    location: Tensor | None = None
    """The chosen location, None for soft attention: (B, K) int64 region numbers, -1 where the expectation over all
    regions was read; or (B, K, 2) float x and y of a point, 0 to 1 across the grid, NaN where no point was chosen."""
    log_prob: Tensor | None = None
    """(B, K) the log-density of the sampled location, 0 where nothing was sampled; None if the mechanism never
    samples."""


class AttentionOutput(NamedTuple):
    """The result of attending once: B images, K queries each, L regions."""

    context: Tensor
    """(B, K, D) the vector z."""
    weights: Tensor
    """(B, K, L) the summary of the maps for heatmaps, over the regions of the first view; 0 where masked.
    `Attention.properties` describes it."""
    maps: TensorTree
    """All maps, see `Weighed.maps`."""
    state: TensorTree = None
    """The mechanism's state for the next step; tensors (B, K, ...)."""
    location: Tensor | None = None
    """See `Reading`."""
    log_prob: Tensor | None = None
    """See `Reading`."""


class Attention(Part, nn.Module):
    """Base class of attention mechanisms: maps each query and an image's regions to a context vector.

    The steps are *weigh* (similarity, then alignment: maps) and *read* (usually a weighted sum: the context). Between
    them the maps pass through `self.maps`, an identity module. A forward hook on it receives every map and may return
    another one to be read instead. Interventions force, mask, permute and record maps in this way.

    The module stores no state between calls. State from step to step is passed in `AttentionOutput.state`, which search
    reorders with its hypotheses.
    """

    context_size: int
    """Length D of the context vector; known after `build`."""
    properties: WeightProperties = WeightProperties()
    """Properties of the summary weights."""
    several_views: bool = False
    """Whether the mechanism takes images with several grids."""

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
        """Compute the memory once per image: everything that depends on the image alone, such as keys and values."""
        raise NotImplementedError

    def start(self, memory: TensorTree, hypotheses: int) -> TensorTree:
        """The state before the first step, tensors (B, K, ...) with K = `hypotheses`, or None."""
        return None

    def weigh(self, query: Query, memory: TensorTree, state: TensorTree) -> Weighed:
        """Compute the maps of a step, without reading the regions."""
        raise NotImplementedError

    def read(
        self, maps: TensorTree, query: Query, memory: TensorTree, weighed: Weighed | None = None
    ) -> Reading:
        """Compute the context with given maps: those from `weigh`, or others of the same structure.

        Mechanisms that sample do so here.

        Args:
            maps: see `Weighed.maps`.
            query: as for `weigh`.
            memory: as for `weigh`.
            weighed: the result of `weigh` at this step; its maps differ from `maps` where a hook has changed them. None
                = read the maps without sampling.
        """
        raise NotImplementedError

    def carry(self, maps: TensorTree, weighed: Weighed) -> TensorTree:
        """The state for the next step, tensors (B, K, ...), given the maps that were read."""
        return weighed.state

    def summary(self, maps: TensorTree) -> Tensor:
        """(B, K, L) the weights for heatmaps; the maps themselves, if they are one tensor (B, K, L)."""
        return maps

    def grids(self, views: Sequence[tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
        """The grid (rows, cols) of each map, by the map's name, for images with these grids.

        Maps that are one tensor are called "weights". A map that is not over regions is left out here; edits and
        figures ignore it.
        """
        return {"weights": views[0]}

    def penalty(self, maps: Mapping[str, Tensor]) -> Tensor | None:
        """A penalty that training may add to the loss, such as the similarity of heads; None for most mechanisms.

        Args:
            maps: (N, ..., L) by name, of all real steps of a batch; see `named_maps`.
        """
        return None

    def forward(self, query: Query, memory: TensorTree, state: TensorTree = None) -> AttentionOutput:
        """Weigh the regions, pass the maps through hooks, and read.

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


def hide_masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores (B, ..., L) with -inf where the mask (B, L) hides a region; None hides none."""
    if mask is None:
        return scores
    return scores.masked_fill(~mask.view(len(mask), *[1] * (scores.dim() - 2), -1), -torch.inf)


def named_maps(maps: TensorTree) -> dict[str, Tensor]:
    """Maps by name; a single tensor is called "weights"."""
    return {"weights": maps} if isinstance(maps, Tensor) else dict(maps._asdict())


def with_maps(maps: TensorTree, named: Mapping[str, Tensor]) -> TensorTree:
    """The same structure with other tensors, by the names of `named_maps`; tensors not named are kept."""
    return named.get("weights", maps) if isinstance(maps, Tensor) else maps._replace(**named)


def chosen(location: Tensor) -> Tensor:
    """(B, K) bool: where a location was chosen; see `Reading.location`."""
    return ~torch.isnan(location).any(-1) if location.is_floating_point() else location >= 0
