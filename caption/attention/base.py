"""The interface of attention mechanisms: weigh the regions, then read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from caption.attention.maps import weighted_sum
from caption.core.errors import UserError
from caption.core.parts import Part
from caption.core.regions import Regions, Views, WeightProperties, check_views
from caption.core.tensor_tree import TensorTree


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


class WeighOutput(NamedTuple):
    """The attention weights of one step, computed by similarity and alignment before the regions are read."""

    maps: TensorTree
    """(B, K, L) weights; or a named tuple of them for mechanisms with several maps: heads (B, K, M, L), hops, levels.
    The last dimension counts the regions. Fields that `Attention.map_views` does not name are not over regions."""
    state: TensorTree = None
    """Other values of this step that `read` or `carry` needs."""


class ReadOutput(NamedTuple):
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
    """All maps, see `WeighOutput.maps`."""
    state: TensorTree = None
    """The mechanism's state for the next step; tensors (B, K, ...)."""
    location: Tensor | None = None
    """See `ReadOutput`."""
    log_prob: Tensor | None = None
    """See `ReadOutput`."""


class GridMemory(NamedTuple):
    """The memory of one grid: keys, values, mask and size."""

    keys: TensorTree
    """Compared with the query; tensors (B, L, ...)."""
    values: Tensor
    """(B, L, D) the vectors that are averaged into the context."""
    mask: Tensor | None
    """(B, L) bool, True where there is a region; None when all are real."""
    grid: tuple[int, int]
    """(rows, cols)."""

    @classmethod
    def of(cls, regions: Regions, keys: TensorTree = None) -> GridMemory:
        """Regions that are their own values."""
        return cls(keys, regions.vectors, regions.mask, regions.grid)


class Attention(Part, nn.Module):
    """Base class of attention mechanisms: maps each query and an image's regions to a context vector.

    The steps are *weigh* (similarity, then alignment: maps) and *read* (usually a weighted sum: the context). Between
    them the maps pass through `self.maps`, an identity module. A forward hook on it receives every map and may return
    another one to be read instead. Interventions force, mask, permute and record maps in this way
    (`caption.attention.map_hooks`).

    The module stores no state between calls. State from step to step is passed in `AttentionOutput.state`, which search
    reorders with its hypotheses.

    A mechanism declares `view_count`, `map_views` and `properties`, and implements `create_weights`, `memory`, `weigh`
    and, unless its context is the weighted sum of the values, `read`.
    """

    view_count: int = 1
    """Number of grids per image that the mechanism attends to."""
    map_views: Mapping[str, int] = {"weights": 0}
    """The view that each map covers, by the map's name; the first map is the one for heatmaps. A single tensor is
    called "weights"; maps in a named tuple have the names of its fields."""
    properties: WeightProperties = WeightProperties()
    """Properties of the summary weights."""
    context_size: int = 0
    """Length of the context vector, 0 before `build`; the sum of the views' D, unless `create_weights` sets it."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Identity()
        self._region_sizes: tuple[int, ...] = ()

    def build(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        """Create the weights. Called once.

        Args:
            region_sizes: length D of the region vectors of each view.
            query_sizes: lengths of the query's vectors.

        Raises:
            UserError: the mechanism does not take that many views.
        """
        self._check_view_count(len(region_sizes))
        self._region_sizes = tuple(region_sizes)
        self.context_size = sum(region_sizes)
        self.create_weights(region_sizes, query_sizes)

    def project(self, views: Views) -> TensorTree:
        """Compute the memory once per image: everything that depends on the image alone, such as keys and values.

        Raises:
            UserError: the mechanism does not take that many views, or a view is malformed, fully masked or has another
                D than the mechanism was built for.
        """
        self._check_view_count(len(views))
        check_views(views)
        for number, (view, size) in enumerate(zip(views, self._region_sizes, strict=False)):
            if view.vectors.shape[-1] != size:
                raise UserError(
                    f"view {number} has region vectors of {view.vectors.shape[-1]} numbers, but {type(self).__name__} "
                    f"was built for {size}: use the encoder that it was built for"
                )
        return self.memory(views)

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        """Create the mechanism's own weights, if it has any; see `build`."""

    def memory(self, views: Views) -> TensorTree:
        """The memory of `view_count` views; see `project`. By default the regions, without keys."""
        return GridMemory.of(views[0])

    def start(self, memory: TensorTree, hypotheses: int) -> TensorTree:
        """The state before the first step, tensors (B, K, ...) with K = `hypotheses`, or None."""
        return None

    def weigh(self, query: Query, memory: TensorTree, state: TensorTree) -> WeighOutput:
        """Compute the maps of a step, without reading the regions."""
        raise NotImplementedError

    def read(
        self, maps: TensorTree, query: Query, memory: TensorTree, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        """Compute the context with given maps: those from `weigh`, or edited ones of the same structure.

        By default, calls `context`. Mechanisms that sample do so here.

        Args:
            maps: see `WeighOutput.maps`.
            query: as for `weigh`.
            memory: as for `weigh`.
            weighed: the result of `weigh` at this step; its maps differ from `maps` if a hook has changed them. None =
                read the maps without sampling.
        """
        return ReadOutput(self.context(maps, query, memory))

    def context(self, maps: TensorTree, query: Query, memory: TensorTree) -> Tensor:
        """(B, K, `context_size`) z, read without sampling; by default Σ α_i a_i, with α the first map."""
        return weighted_sum(self.summary(maps), memory.values)

    def carry(self, maps: TensorTree, weighed: WeighOutput) -> TensorTree:
        """The state for the next step, tensors (B, K, ...), given the maps that were read."""
        return weighed.state

    def summary(self, maps: TensorTree) -> Tensor:
        """(B, K, L) the weights for heatmaps: the first of `map_views`, the mean over its heads, hops or channels."""
        weights = maps if isinstance(maps, Tensor) else getattr(maps, next(iter(self.map_views)))
        return weights.flatten(2, -2).mean(2) if weights.dim() > 3 else weights

    def grids(self, views: Sequence[tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
        """The grid (rows, cols) of each map in `map_views`, for images with these grids."""
        return {name: views[view] for name, view in self.map_views.items()}

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
            state: from `start` or the last output; None for mechanisms that keep none.

        Raises:
            UserError: the context's length differs from `context_size`.
        """
        weighed = self.weigh(query, memory, state)
        maps = self.maps(weighed.maps)
        reading = self.read(maps, query, memory, weighed)
        if reading.context.shape[-1] != self.context_size > 0:
            raise UserError(
                f"{type(self).__name__} reads a context of shape {tuple(reading.context.shape)}: it must be (B, K, "
                f"{self.context_size}), because `build` has set context_size to {self.context_size}"
            )
        return AttentionOutput(
            reading.context,
            self.summary(maps),
            maps,
            self.carry(maps, weighed),
            reading.location,
            reading.log_prob,
        )

    def _check_view_count(self, views: int) -> None:
        count = self.view_count
        if views == count:
            return
        wanted = f"{count} grids"
        remedy = f"as many, such as SmallCNN with `views: {count}` or TorchvisionEncoder with {count} layers"
        if count == 1:
            wanted = "one grid"
            remedy = "one grid, or a mechanism that takes several, such as AttentionViaAttention"
        raise UserError(
            f"{type(self).__name__} attends to {wanted}, and the encoder gives {views}: take an encoder with {remedy}"
        )
