"""A look at a window and a look at everything, side by side (Luong et al. 2015: local and global attention)."""

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


class LookMaps(NamedTuple):
    """The maps of both looks."""

    looks: Tensor
    """(B, K, 2, L): the window, then the whole grid."""


class LookMemory(NamedTuple):
    """The memories of both looks, with the same values."""

    local: GridMemory
    everywhere: GridMemory


class LookStates(NamedTuple):
    """The states of both looks."""

    local: ScoredState | None
    everywhere: ScoredState | None


class LocalGlobalAttention(Attention):
    """z = [c_local; c_global]: c_local = Σ_i α_i a_i within a window, c_global = Σ_i β_i a_i with β a softmax over all
    regions.

    Luong et al. 2015 compare the two (sections 3.1 and 3.2); here both are used.

    Args:
        local_score: compares regions with the query for the look at the window.
        window: the alignment of that look, such as `PredictedWindow` or `FollowingWindow`.
        global_score: compares regions with the query for the look at everything.

    Raises:
        UserError: the window's alignment samples.
    """

    map_views = {"looks": 0}

    def __init__(self, local_score: Score, window: Alignment, global_score: Score) -> None:
        super().__init__()
        if stochastic_parts(window):
            raise UserError(
                f"{type(window).__name__} samples a region, and LocalGlobalAttention reads both looks: take a window "
                "such as PredictedWindow"
            )
        self.local = ScoredAttention(local_score, window)
        self.everywhere = ScoredAttention(global_score, Softmax())

    @property
    def properties(self) -> WeightProperties:  # type: ignore[override]
        """The properties of the window: the other look's weights are a distribution."""
        return self.local.properties

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = 2 * region_sizes[0]
        self.local.build(region_sizes, query_sizes)
        self.everywhere.build(region_sizes, query_sizes)

    def memory(self, views: Views) -> LookMemory:
        return LookMemory(self.local.memory(views), self.everywhere.memory(views))

    def start(self, memory: LookMemory, hypotheses: int) -> LookStates:
        return LookStates(
            self.local.start(memory.local, hypotheses), self.everywhere.start(memory.everywhere, hypotheses)
        )

    def weigh(self, query: Query, memory: LookMemory, state: LookStates | None) -> WeighOutput:
        state = state or LookStates(None, None)
        local = self.local.weigh(query, memory.local, state.local)
        everywhere = self.everywhere.weigh(query, memory.everywhere, state.everywhere)
        return WeighOutput(LookMaps(torch.stack((local.maps, everywhere.maps), 2)), (local, everywhere))

    def context(self, maps: LookMaps, query: Query, memory: LookMemory) -> Tensor:
        return weighted_sum(maps.looks, memory.local.values[:, None]).flatten(2)

    def carry(self, maps: LookMaps, weighed: WeighOutput) -> LookStates:
        local, everywhere = maps.looks.unbind(2)
        of_local, of_everywhere = weighed.state
        return LookStates(self.local.carry(local, of_local), self.everywhere.carry(everywhere, of_everywhere))
