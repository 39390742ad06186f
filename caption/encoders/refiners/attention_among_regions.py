"""Layers of multi-head attention among regions, shared by the self-attention and cross-attention refiners."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor, nn

from caption.attention.multi_head import HeadGates, keep_heads, keep_open_heads
from caption.attention.scaled_dot_product import ABSOLUTE, Relative, ScaledDotProduct
from caption.core.errors import UserError


class AttentionLayers(nn.Module):
    """x_n = x_(n-1) + dropout(MultiHead(LN(x_(n-1)), Y)); the result is LN(x_N). In self-attention, Y = LN(x_(n-1)).

    LayerNorm precedes the attention and follows the last layer (Xiong et al. 2020, "On Layer Normalization in the
    Transformer Architecture", table 1). N is the depth. Each layer has its own gates.
    """

    def __init__(
        self, size: int, heads: int, depth: int, dropout: float, gates: HeadGates | None = None
    ) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(depth))
        self.attend = nn.ModuleList(RegionAttention(size, heads, gates) for _ in range(depth))
        self.dropout = nn.Dropout(dropout)
        self.leave = nn.LayerNorm(size)

    def forward(
        self, x: Tensor, attended: Tensor | None, mask: Tensor | None, relative: Relative = ABSOLUTE
    ) -> Tensor:
        """Regions (B, L, S) -> (B, L, S).

        Args:
            x: x_0 (B, L, S).
            attended: Y (B, L', S), the regions attended to; None = self-attention.
            mask: (B, L') bool, True where Y has a region; None = everywhere.
            relative: see `RegionAttention.forward`.
        """
        for number in range(len(self.attend)):
            x = self.layer(number, x, attended, mask, relative)
        return self.leave(x)

    def layer(
        self, number: int, x: Tensor, attended: Tensor | None, mask: Tensor | None, relative: Relative
    ) -> Tensor:
        """x_(n-1) -> x_n, n = `number` + 1."""
        normed = self.norms[number](x)
        update = self.attend[number](normed, normed if attended is None else attended, mask, relative)
        return x + self.dropout(update)


class RegionAttention(nn.Module):
    """[g_1 head_1; ...; g_M head_M] W_O, head_m = softmax(Q W_m^Q (Y W_m^K)ᵀ / √d + b_m) Y W_m^V, with d = S/M.

    Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2. S is the length of the vectors. The gates g (Voita
    et al. 2019, section 6) are 1 unless `gates` is given. Relative vectors are those of `ScaledDotProduct`. A hook on
    `product.maps` receives the weights.

    Raises:
        UserError: S cannot be divided by M.
    """

    def __init__(self, size: int, heads: int, gates: HeadGates | None = None) -> None:
        super().__init__()
        if heads < 1 or size % heads:
            raise UserError(
                f"size {size} of the vectors is not divisible by heads {heads}: choose a size divisible by heads"
            )
        self.heads = heads
        self.kept: list[int] | None = None
        """The original numbers of the remaining heads; None = no head was removed."""
        self.queries = nn.Linear(size, size)
        self.keys = nn.Linear(size, size)
        self.values = nn.Linear(size, size)
        self.product = ScaledDotProduct()
        self.gates = copy.deepcopy(gates)
        if self.gates is not None:
            self.gates.build(heads)
        self.join = nn.Linear(size, size)

    def forward(
        self, queries: Tensor, attended: Tensor, mask: Tensor | None = None, relative: Relative = ABSOLUTE
    ) -> Tensor:
        """Attend from each region of Q to the regions Y -> (B, L, S).

        Args:
            queries: Q (B, L, S), the regions that attend.
            attended: Y (B, L', S), the regions attended to.
            mask: (B, L') bool, True where Y has a region; None = everywhere.
            relative: how a region's score, key and value depend on its offset from the region that attends.
        """
        if self.kept is not None and relative.biases is not None:
            relative = relative._replace(biases=relative.biases[self.kept])
        read = self.product(
            self._split(self.queries(queries)),
            self._split(self.keys(attended)),
            self._split(self.values(attended)),
            None if mask is None else mask[:, None, None],
            relative,
        )
        if self.gates is not None:
            read = read * self.gates()[:, None, None]
        return self.join(read.transpose(1, 2).flatten(2))

    def keep(self, heads: Sequence[int]) -> None:
        """Keep only these heads. Called once."""
        keep_heads(self, heads, self.heads, "join")
        self.kept, self.heads = [*heads], len(heads)

    def keep_open(self, gates: HeadGates) -> int:
        """Keep only the open heads, at least one, with the gates multiplied into W_O; returns the number of open
        heads."""
        self.kept, count = keep_open_heads(self, gates, self.heads, "join")
        self.heads, self.gates = len(self.kept), None
        return count

    def _split(self, vectors: Tensor) -> Tensor:
        """(B, L, S) -> (B, M, L, d)."""
        return vectors.unflatten(-1, (self.heads, -1)).transpose(1, 2)
