"""Terms on the attention weights that objectives may add."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from caption.decoders.base import Unrolled
from caption.errors import UserError
from caption.result import WeightProperties

Reduction = Literal["sum", "mean"]


def doubly_stochastic(unrolled: Unrolled, properties: WeightProperties, regions: Reduction = "sum") -> Tensor:
    """Σ_i (1 − Σ_t α[t,i])² for each caption, (B, K): whether every region gets its share of attention (eq. 14).

    Σ_t runs over real steps only. A caption of fewer steps than regions cannot reach 0: T steps spread
    over L regions leave L (1 − T/L)².

    Args:
        unrolled: from the decoder.
        properties: what holds of its weights.
        regions: "sum" over the regions as in eq. 14, or their "mean" as in the authors' code.

    Raises:
        UserError: weights may be negative, so that their sum says nothing about how much a region was attended to.
    """
    if properties.signed:
        raise UserError(
            "the doubly stochastic term needs weights of at least 0, and this attention has negative ones: set the "
            "objective's doubly_stochastic to 0"
        )
    totals = unrolled.unpack(unrolled.trace.weights.float()).sum(2)
    deviations = (1 - totals).square()
    return deviations.sum(-1) if regions == "sum" else deviations.mean(-1)
