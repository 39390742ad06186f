"""The gate β, which scales the context at each step: z[t] = β[t] Σ_i α[t,i] a[i] (section 4.2.1)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from caption.core.parts import Part


class Gate(Part, nn.Module):
    """β[t] = σ(f_β(h[t-1])).

    Args:
        size: "scalar", one number per step, as in the paper; or "vector", one per context feature.
    """

    def __init__(self, size: Literal["scalar", "vector"] = "scalar") -> None:
        super().__init__()
        self.size = size

    def build(self, hidden_size: int, context_size: int) -> None:
        self.project = nn.Linear(hidden_size, 1 if self.size == "scalar" else context_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """h[t-1] (B, K, H) -> β (B, K, 1) or (B, K, D)."""
        return self.project(hidden).sigmoid()
