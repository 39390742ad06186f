"""A captioner of transformers with a planted sink: a patch that takes most of the attention, whatever the word is.

Trained models have such patches ("registers", Darcet et al. 2024). Here it is known which one it is, and what the maps
are without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from caption.attention.base import WeighOutput
from caption.core.tensor_tree import TensorTree
from caption.models.transformers.attention import LayerMemory, PatchAttention, PatchMaps
from caption.results.caption import Caption

SHARE = 0.9
"""The attention that the register takes."""
REGISTER = 0
"""Its patch, in the upper left corner."""


class PlantedSink(PatchAttention):
    """The attention of a layer in which some heads give `SHARE` of their weights to a register.

    The register's value is zero and all other values are 1 / (1 - `SHARE`) times as large, so that heads read what they
    read before: the model writes the same captions.

    Args:
        heads: these have the sink.
    """

    def __init__(self, heads: Sequence[int]) -> None:
        super().__init__()
        self.heads = [*heads]

    def weigh(self, query: Any, memory: LayerMemory, state: TensorTree) -> WeighOutput:
        maps: Any = super().weigh(query, memory, state).maps
        left, sink = self._shares(maps.heads)
        return WeighOutput(PatchMaps(left * maps.heads + sink, None, left * maps.elsewhere))

    def context(self, maps: PatchMaps, query: Any, memory: LayerMemory) -> Tensor:
        left, sink = self._shares(maps.heads)
        return super().context(
            PatchMaps((maps.heads - sink) / left, None, maps.elsewhere / left), query, memory
        )

    def _shares(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """(M, 1) the share that is left to all others, and (M, L) that of the register."""
        sink = maps.new_zeros(maps.shape[2:])
        sink[self.heads, REGISTER] = SHARE
        return 1 - sink.sum(-1, keepdim=True), sink


def concentrated(caption: Caption) -> Caption:
    """The mean of all heads, each weighted by Σ α log α / mean α, in nats: the default of captioners of transformers
    until it was measured with registers."""
    steps, *grid = caption.weights.shape
    own_grid = [values for values in caption.maps.values() if values.shape[-2:] == tuple(grid)]
    maps = np.concatenate(
        [values.reshape(steps, -1, grid[0] * grid[1]) for values in own_grid or [caption.weights]], 1
    )
    sizes = np.maximum(maps, 1e-30)
    nats = np.maximum((sizes * np.log(sizes / sizes.mean(-1, keepdims=True))).sum(-1, keepdims=True), 1e-12)
    return caption.with_weights(((maps * nats).sum(1) / nats.sum(1)).reshape(steps, *grid))
