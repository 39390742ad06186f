"""Scaled dot-product attention (Vaswani et al. 2017), for self-attention among regions and among words."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Relative(NamedTuple):
    """Terms of scores and values that depend on the position of key j relative to query i."""

    biases: Tensor | None = None
    """b (M, L, L'), added to the scores."""
    keys: Tensor | None = None
    """a^K_ij (L, L', d), added to the key of j for the query of i."""
    values: Tensor | None = None
    """a^V_ij (L, L', d), added to the value of j for the query of i."""


ABSOLUTE = Relative()
"""No relative positions."""


class ScaledDotProduct(nn.Module):
    """α_ij = softmax_j(q_i · (k_j + a^K_ij) / √d + b_ij), z_i = Σ_j α_ij (v_j + a^V_ij).

    Vaswani et al. 2017, section 3.2.1; a^K and a^V: Shaw et al. 2018, eqs. 3 and 4. The weights pass through `maps`, as
    in `caption.attention.Attention`: a forward hook on it receives α (..., M, L, L'), and may return edited weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Identity()

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        allowed: Tensor | None = None,
        relative: Relative = ABSOLUTE,
        causal: bool = False,
    ) -> Tensor:
        """Attend -> (..., M, L, d).

        Args:
            queries: (..., M, L, d) of M heads.
            keys, values: (..., M, L', d).
            allowed: bool that broadcasts to (..., M, L, L'), False where a query may not read a key; None = all True.
            relative: see `Relative`.
            causal: query i may read only the keys up to i; cannot be combined with `allowed` or biases.
        """
        if causal:
            allowed = torch.ones(
                queries.shape[-2], keys.shape[-2], dtype=torch.bool, device=keys.device
            ).tril()
        scores = queries @ keys.mT
        if relative.keys is not None:
            scores = scores + torch.einsum("...id,ijd->...ij", queries, relative.keys)
        scores = scores / queries.shape[-1] ** 0.5
        if relative.biases is not None:
            scores = scores + relative.biases
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        weights = self.maps(scores.softmax(-1))
        read = weights @ values
        if relative.values is not None:
            read = read + torch.einsum("...ij,ijd->...id", weights, relative.values)
        return read
