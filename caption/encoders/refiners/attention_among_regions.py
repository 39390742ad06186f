"""Layers of multi-head attention among regions, shared by the self-attention and cross-attention refiners."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor, nn

from caption.attention.multi_head import HeadGates, keep_heads, keep_open_heads
from caption.attention.scaled_dot_product import ABSOLUTE, Relative, ScaledDotProduct
from caption.core.errors import UserError


class AttentionLayers(nn.Module):
    """x_n = x_(n-1) + dropout(MultiHead(LN(x_(n-1)), Y)); the result is LN(x_N). Without others, Y = LN(x_(n-1)).

    LayerNorm precedes the attention and follows the last layer (Xiong et al. 2020, "On Layer Normalization in the
    Transformer Architecture", table 1). N is the depth. Each layer has gates of its own.
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
        self, x: Tensor, others: Tensor | None, mask: Tensor | None, relative: Relative = ABSOLUTE
    ) -> Tensor:
        """Regions x (B, L, S), others Y (B, L', S) with their mask, relative: see `RegionAttention` -> (B, L, S)."""
        for number in range(len(self.attend)):
            x = self.layer(number, x, others, mask, relative)
        return self.leave(x)

    def layer(
        self, number: int, x: Tensor, others: Tensor | None, mask: Tensor | None, relative: Relative
    ) -> Tensor:
        """x_(n-1) -> x_n, n = `number` + 1."""
        normed = self.norms[number](x)
        attended = self.attend[number](normed, normed if others is None else others, mask, relative)
        return x + self.dropout(attended)


class RegionAttention(nn.Module):
    """[g_1 head_1; ...; g_M head_M] W_O, head_m = softmax(Q W_m^Q (Y W_m^K)ᵀ / √d + b_m) Y W_m^V, with d = S/M.

    Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2. S is the length of the vectors. The gates g (Voita
    et al. 2019, section 6) are 1 unless some are given. Relative vectors are those of `ScaledDotProduct`, and a hook on
    `product.maps` sees the weights.

    Raises:
        UserError: S cannot be divided by M.
    """

    def __init__(self, size: int, heads: int, gates: HeadGates | None = None) -> None:
        super().__init__()
        if heads < 1 or size % heads:
            raise UserError(
                f"heads is {heads}, and vectors of length {size} cannot be divided among so many: choose a size "
                "divisible by heads"
            )
        self.heads = heads
        self.kept: list[int] | None = None
        """The numbers of the heads that are left, among those that there were; None = all are."""
        self.queries = nn.Linear(size, size)
        self.keys = nn.Linear(size, size)
        self.values = nn.Linear(size, size)
        self.product = ScaledDotProduct()
        self.gates = copy.deepcopy(gates)
        if self.gates is not None:
            self.gates.build(heads)
        self.join = nn.Linear(size, size)

    def forward(
        self, queries: Tensor, others: Tensor, mask: Tensor | None = None, relative: Relative = ABSOLUTE
    ) -> Tensor:
        """Attend from each region to others -> (B, L, S).

        Args:
            queries: Q (B, L, S), the regions that attend.
            others: Y (B, L', S), the regions attended to.
            mask: (B, L') bool, True where Y has a region; None = everywhere.
            relative: how a region's score, key and value depend on its offset from the region that attends.
        """
        if self.kept is not None and relative.biases is not None:
            relative = relative._replace(biases=relative.biases[self.kept])
        read = self.product(
            self._split(self.queries(queries)),
            self._split(self.keys(others)),
            self._split(self.values(others)),
            None if mask is None else mask[:, None, None],
            relative,
        )
        if self.gates is not None:
            read = read * self.gates()[:, None, None]
        return self.join(read.transpose(1, 2).flatten(2))

    def keep(self, heads: Sequence[int]) -> None:
        """Keep these heads alone, of all that there are. Called once."""
        keep_heads(self, heads, self.heads, "join")
        self.kept, self.heads = [*heads], len(heads)

    def keep_open(self, gates: HeadGates) -> int:
        """Keep the heads whose gates are open, at least one, with the gates in W_O; returns how many are open."""
        self.kept, count = keep_open_heads(self, gates, self.heads, "join")
        self.heads, self.gates = len(self.kept), None
        return count

    def _split(self, vectors: Tensor) -> Tensor:
        """(B, L, S) -> (B, M, L, d)."""
        return vectors.unflatten(-1, (self.heads, -1)).transpose(1, 2)
