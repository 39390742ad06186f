"""Memory networks (Sukhbaatar et al. 2015): hops that address one embedding of the regions and read another."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, Query, QuerySizes, WeighOutput
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.multi_hop import HopMaps
from caption.attention.options import at_least_one
from caption.core.regions import Views
from caption.core.tensor_tree import TensorTree

Tying = Literal["adjacent", "layer-wise"]


class EmbeddedMemory(NamedTuple):
    """The embeddings of the regions."""

    embedded: tuple[Tensor, ...]
    """(B, L, S) each, in the order of `MemoryNetworkAttention.embeddings`."""
    mask: Tensor | None
    """(B, L), see `Regions`."""


class MemoryNetworkAttention(Attention):
    """Hop n addresses the regions with A_n and reads them with C_n (section 2): α_n = softmax(u_n · A_n a_i), o_n =
    Σ_i α_n,i C_n a_i, from u_1 = B h. The context is the last u.

    There are two ways of sharing the embeddings (section 2.2). *Adjacent*: each hop addresses the embedding that the
    previous one has read, A_{n+1} = C_n, and u_{n+1} = u_n + o_n. *Layer-wise*: A and C are the same at every hop, and
    u_{n+1} = H u_n + o_n with a learned H. The paper also ties B and the answer's weights, which are embeddings of
    words; this does not apply here, because the state h and the regions share no embedding. Editing the map of one hop
    does not change the maps of later hops.

    Args:
        hops: N.
        size: S, the length of u and of the embeddings.
        tying: which embeddings are shared.

    Raises:
        UserError: `hops` is below 1.
        UserError: the tying is unknown.
    """

    map_views = {"hops": 0}

    def __init__(self, hops: int = 3, size: int = 256, tying: Tying = "adjacent") -> None:
        super().__init__()
        at_least_one(self, hops=hops)
        self.hops = hops
        self.size = size
        self.tying = tying

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = self.size
        self.query = nn.Linear(query_sizes.hidden, self.size, bias=False)  # B
        adjacent = self.tying == "adjacent"
        self.embeddings = nn.ModuleList(
            nn.Linear(region_sizes[0], self.size, bias=False) for _ in range(self.hops + 1 if adjacent else 2)
        )
        self.hop = nn.Identity() if adjacent else nn.Linear(self.size, self.size, bias=False)  # H

    def memory(self, views: Views) -> EmbeddedMemory:
        vectors, _, mask = views[0]
        return EmbeddedMemory(tuple(embed(vectors) for embed in self.embeddings), mask)

    def _addressed_and_read(self, memory: EmbeddedMemory, hop: int) -> tuple[Tensor, Tensor]:
        """(B, L, S) A_n a and C_n a of a hop."""
        first = hop if self.tying == "adjacent" else 0
        return memory.embedded[first], memory.embedded[first + 1]

    def weigh(self, query: Query, memory: EmbeddedMemory, state: TensorTree) -> WeighOutput:
        u, maps = self.query(query.hidden), []
        for hop in range(self.hops):
            addressed, read = self._addressed_and_read(memory, hop)
            maps.append(hide_masked(u @ addressed.mT, memory.mask).softmax(-1))
            u = self.hop(u) + weighted_sum(maps[-1], read)
        return WeighOutput(HopMaps(torch.stack(maps, 2)))

    def context(self, maps: HopMaps, query: Query, memory: EmbeddedMemory) -> Tensor:
        u = self.query(query.hidden)
        for hop, weights in enumerate(maps.hops.unbind(2)):
            u = self.hop(u) + weighted_sum(weights, self._addressed_and_read(memory, hop)[1])
        return u
