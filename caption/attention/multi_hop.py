"""Multi-hop attention (after Sukhbaatar et al. 2015, section 2.2): the context of each hop refines the next query."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.options import at_least_one
from caption.attention.scored import Score, build_stateless
from caption.core.regions import Views
from caption.core.tensor_tree import TensorTree


class HopMaps(NamedTuple):
    """The maps of N hops."""

    hops: Tensor
    """(B, K, N, L), the first hop first."""


class MultiHopAttention(Attention):
    """u_{n+1} = u_n + W z_n, z_n = Σ_i α_n,i a_i, α_n = softmax(f_att(a, u_n)), from u_0 = h. The context is Σ_n W z_n.

    For any score. All hops share its weights and W, and the query is added unchanged; the paper's own form, with its
    embeddings, tyings and H, is `MemoryNetworkAttention`. The context is the sum of the hops' additions to the query.
    Editing the map of one hop does not change the maps of later hops.

    Args:
        score: f_att of the query u_n; it must use only `Query.hidden`.
        hops: N.

    Raises:
        UserError: `hops` is below 1; when built with a score that keeps a state.
    """

    map_views = {"hops": 0}

    def __init__(self, score: Score, hops: int = 3) -> None:
        super().__init__()
        at_least_one(self, hops=hops)
        self.score = score
        self.hops = hops

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        build_stateless(self, self.score, region_sizes[0], query_sizes)
        self.read_into_query = nn.Linear(region_sizes[0], query_sizes.hidden, bias=False)
        self.context_size = query_sizes.hidden

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.score.keys(views[0]))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        maps: list[Tensor] = []
        for hop in range(self.hops):
            if hop:
                read = self.read_into_query(weighted_sum(maps[-1], memory.values))
                query = query._replace(hidden=query.hidden + read)
            maps.append(hide_masked(self.score(query, memory), memory.mask).softmax(-1))
        return WeighOutput(HopMaps(torch.stack(maps, 2)))

    def context(self, maps: HopMaps, query: Query, memory: GridMemory) -> Tensor:
        total = maps.hops.sum(2)  # W is linear: the sum of the products is the product of the sum
        return self.read_into_query(weighted_sum(total, memory.values))
