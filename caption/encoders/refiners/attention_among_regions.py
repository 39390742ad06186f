"""Layers of multi-head attention among regions, shared by the self-attention and cross-attention refiners."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.errors import UserError


class AttentionLayers(nn.Module):
    """x_n = x_(n-1) + dropout(MultiHead(LN(x_(n-1)), Y)); the result is LN(x_N). Without others, Y = LN(x_(n-1)).

    LayerNorm precedes the attention and follows the last layer (Xiong et al. 2020, "On Layer Normalization in the
    Transformer Architecture", table 1). N is the depth.
    """

    def __init__(self, size: int, heads: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(depth))
        self.attend = nn.ModuleList(RegionAttention(size, heads) for _ in range(depth))
        self.dropout = nn.Dropout(dropout)
        self.leave = nn.LayerNorm(size)

    def forward(
        self, x: Tensor, others: Tensor | None, mask: Tensor | None, biases: Tensor | None = None
    ) -> Tensor:
        """Regions x (B, L, S), others Y (B, L', S) with their mask, biases: see `RegionAttention` -> (B, L, S)."""
        for norm, attend in zip(self.norms, self.attend, strict=True):
            normed = norm(x)
            x = x + self.dropout(attend(normed, normed if others is None else others, mask, biases))
        return self.leave(x)


class RegionAttention(nn.Module):
    """[head_1; ...; head_M] W_O, head_m = softmax(Q W_m^Q (Y W_m^K)ᵀ / √d + b_m) Y W_m^V, with d = S/M.

    Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2. S is the length of the vectors.

    Raises:
        UserError: S cannot be divided by M.
    """

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        if heads < 1 or size % heads:
            raise UserError(
                f"heads is {heads}, and vectors of length {size} cannot be divided among so many: choose a size "
                "divisible by heads"
            )
        self.heads = heads
        self.queries = nn.Linear(size, size)
        self.keys = nn.Linear(size, size)
        self.values = nn.Linear(size, size)
        self.join = nn.Linear(size, size)

    def forward(
        self, queries: Tensor, others: Tensor, mask: Tensor | None = None, biases: Tensor | None = None
    ) -> Tensor:
        """Attend from each region to others -> (B, L, S).

        Args:
            queries: Q (B, L, S), the regions that attend.
            others: Y (B, L', S), the regions attended to.
            mask: (B, L') bool, True where Y has a region; None = everywhere.
            biases: b (M, L, L'), or None = 0.
        """
        allowed = None if mask is None else mask[:, None, None]
        if biases is not None:
            biases = biases[None]
            allowed = biases if allowed is None else biases.masked_fill(~allowed, -torch.inf)
        read = functional.scaled_dot_product_attention(
            self._split(self.queries(queries)),
            self._split(self.keys(others)),
            self._split(self.values(others)),
            allowed,
        )
        return self.join(read.transpose(1, 2).flatten(2))

    def _split(self, vectors: Tensor) -> Tensor:
        """(B, L, S) -> (B, M, L, d)."""
        return vectors.unflatten(-1, (self.heads, -1)).transpose(1, 2)
