"""Local and global attention side by side (after Luong et al. 2015; Seo et al. 2017): a window of the grid, and all
regions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from caption.attention.alignments.soft import Softmax
from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import weighted_sum
from caption.attention.scored import Alignment, Score, ScoredAttention, ScoredState
from caption.attention.stochastic import stochastic_parts
from caption.core.errors import UserError
from caption.core.regions import Views, WeightProperties


class LocalGlobalMaps(NamedTuple):
    """The maps of both attentions."""

    local_global: Tensor
    """(B, K, 2, L): local (the window), then global (the whole grid)."""


class LocalGlobalMemory(NamedTuple):
    """The memories of both attentions, with the same values."""

    local: GridMemory
    everywhere: GridMemory


class LocalGlobalState(NamedTuple):
    """The states of both attentions."""

    local: ScoredState | None
    everywhere: ScoredState | None


class LocalGlobalAttention(Attention):
    """z = [c_local; c_global]: c_local = Σ_i α_i a_i within a window, c_global = Σ_i β_i a_i over all regions, with β a
    softmax by default.

    Luong et al. 2015 compare the two (sections 3.1 and 3.2); here both are used. With `NeighbourhoodScore`,
    `WholeGridScore` and two `Sigmoid`, it is the dual attention of D-Attn (Seo et al. 2017, section 3).

    Args:
        local_score: compares regions with the query in the local attention.
        window: the alignment of the local attention, such as `PredictedWindow` or `FollowingWindow`.
        global_score: compares regions with the query in the global attention.
        everywhere: the alignment of the global attention; None = `Softmax`.

    Raises:
        UserError: an alignment samples.
    """

    map_views = {"local_global": 0}

    def __init__(
        self, local_score: Score, window: Alignment, global_score: Score, everywhere: Alignment | None = None
    ) -> None:
        super().__init__()
        everywhere = everywhere or Softmax()
        for alignment, other in ((window, "PredictedWindow"), (everywhere, "Softmax")):
            if stochastic_parts(alignment):
                raise UserError(
                    f"{type(alignment).__name__} samples a region, but LocalGlobalAttention reads weighted sums: take "
                    f"an alignment such as {other}"
                )
        self.local = ScoredAttention(local_score, window)
        self.everywhere = ScoredAttention(global_score, everywhere)

    @property
    def properties(self) -> WeightProperties:  # type: ignore[override]
        """The properties of the mean of both maps."""
        local, everywhere = self.local.properties, self.everywhere.properties
        return WeightProperties(
            sums_to_one=local.sums_to_one and everywhere.sums_to_one, signed=local.signed or everywhere.signed
        )

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = 2 * region_sizes[0]
        self.local.build(region_sizes, query_sizes)
        self.everywhere.build(region_sizes, query_sizes)

    def memory(self, views: Views) -> LocalGlobalMemory:
        return LocalGlobalMemory(self.local.memory(views), self.everywhere.memory(views))

    def start(self, memory: LocalGlobalMemory, hypotheses: int) -> LocalGlobalState:
        return LocalGlobalState(
            self.local.start(memory.local, hypotheses), self.everywhere.start(memory.everywhere, hypotheses)
        )

    def weigh(self, query: Query, memory: LocalGlobalMemory, state: LocalGlobalState | None) -> WeighOutput:
        state = state or LocalGlobalState(None, None)
        local = self.local.weigh(query, memory.local, state.local)
        everywhere = self.everywhere.weigh(query, memory.everywhere, state.everywhere)
        return WeighOutput(
            LocalGlobalMaps(torch.stack((local.maps, everywhere.maps), 2)), (local, everywhere)
        )

    def context(self, maps: LocalGlobalMaps, query: Query, memory: LocalGlobalMemory) -> Tensor:
        return weighted_sum(maps.local_global, memory.local.values[:, None]).flatten(2)

    def carry(self, maps: LocalGlobalMaps, weighed: WeighOutput) -> LocalGlobalState:
        local_map, global_map = maps.local_global.unbind(2)
        local, everywhere = weighed.state
        return LocalGlobalState(
            self.local.carry(local_map, local), self.everywhere.carry(global_map, everywhere)
        )
