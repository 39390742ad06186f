"""Compositional de-attention (Tay et al. 2019): weights that may add a region, leave it out, or subtract it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.options import above_zero
from caption.core.regions import Views, WeightProperties
from caption.core.tensor_tree import TensorTree

GateForm = Literal["centred", "doubled", "plain"]
"""The form of the gate. Distances are at least 0, so the plain σ(−distance) never exceeds ½."""


class CompositionalDeAttention(Attention):
    """α_i = tanh(α_s e_i) · g_i, e_i = q · k_i, n_i = −‖q − k_i‖₁, z = Σ_i α_i a_i; g_i = σ(β_s (n_i − mean n)),
    2σ(β_s n_i) or σ(β_s n_i).

    The form that surveys give, after Tay et al. 2019, "Compositional De-Attention Networks", with all forms of the
    gate. The tanh decides whether a region is added, ignored or subtracted; the gate decides how much of it. Weights
    are between -1 and 1 and do not sum to one; a heatmap shows their sign. The mean is over the real regions of the
    query's image. Products and distances use the same queries and keys.

    A dot product of A numbers grows as √A. A sum of A distances grows as A, but its differences between regions grow as
    √A. The default scale factors follow from this. Other implementations divide both by √A, which nearly closes a
    gate that is not centred for long keys.

    Args:
        size: A, the length of keys and queries.
        gate: "centred", "doubled" or "plain".
        affinity_scale: α_s; None = 1 / √A.
        distance_scale: β_s; None = 1 / √A for the centred gate, 1 / A for the others.

    Raises:
        UserError: a scale is not above 0.
    """

    properties = WeightProperties(sums_to_one=False, signed=True)

    def __init__(
        self,
        size: int = 256,
        gate: GateForm = "centred",
        affinity_scale: float | None = None,
        distance_scale: float | None = None,
    ) -> None:
        super().__init__()
        above_zero(self, affinity_scale=affinity_scale, distance_scale=distance_scale)
        self.size = size
        self.gate = gate
        self.affinity_scale = affinity_scale or size**-0.5
        self.distance_scale = distance_scale or (size**-0.5 if gate == "centred" else 1 / size)

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.key = nn.Linear(region_sizes[0], self.size)
        self.query = nn.Linear(query_sizes.hidden, self.size)

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.key(views[0].vectors))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        queries = self.query(query.hidden)
        affinity = queries @ memory.keys.mT
        nearness = -torch.cdist(queries, memory.keys.to(queries.dtype), p=1)
        weights = (self.affinity_scale * affinity).tanh() * self._gate(nearness, memory.mask)
        if memory.mask is not None:
            weights = weights.masked_fill(~memory.mask[:, None], 0.0)
        return WeighOutput(weights)

    def _gate(self, nearness: Tensor, mask: Tensor | None) -> Tensor:
        """(B, K, L) negative distances n -> gates g."""
        if self.gate != "centred":
            return (2 if self.gate == "doubled" else 1) * (self.distance_scale * nearness).sigmoid()
        if mask is None:
            mean = nearness.mean(-1, keepdim=True)
        else:
            real = mask[:, None].to(nearness.dtype)
            mean = (nearness * real).sum(-1, keepdim=True) / real.sum(-1, keepdim=True)
        return (self.distance_scale * (nearness - mean)).sigmoid()
