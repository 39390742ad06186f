"""Self-attention in its simplest form: the regions are queries, keys and values."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from caption.core.regions import Regions
from caption.encoders.refiners.base import EachView


class PlainSelfAttentionRefiner(EachView):
    """X' = softmax(X Xᵀ) X, with X the regions (L, D): self-attention as in introductions.

    It has no weights, scale, residual connection or normalisation; the Transformer's form is `SelfAttentionRefiner`.
    The scores grow with the vectors, so a long vector becomes the longest one in its direction, and a short vector the
    mean of all.
    """

    def layers(self, region_size: int) -> nn.Module:
        return _SoftmaxOfProducts()


class _SoftmaxOfProducts(nn.Module):
    def forward(self, regions: Regions) -> Tensor:
        x = regions.vectors
        allowed = None if regions.mask is None else regions.mask[:, None]
        return functional.scaled_dot_product_attention(x, x, x, allowed, scale=1.0)
