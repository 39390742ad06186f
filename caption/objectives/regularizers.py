"""Regularization terms on the attention weights."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from caption.decoders.base import Unrolled
from caption.errors import UserError
from caption.result import WeightProperties

Reduction = Literal["sum", "mean"]


def doubly_stochastic(unrolled: Unrolled, properties: WeightProperties, regions: Reduction = "sum") -> Tensor:
    """Σ_i (1 − Σ_t α[t,i])² for each caption, (B, K), which encourages equal attention to every region (eq. 14).

    It is 0 for absent captions. Σ_t runs over real steps only. With fewer steps than regions it cannot reach 0: T steps
    over L regions give at least L (1 − T/L)².

    Args:
        unrolled: from the decoder.
        properties: of its weights.
        regions: "sum" over the regions as in eq. 14, or their "mean" as in the authors' code.

    Raises:
        UserError: weights may be negative, so that their sum does not measure attention to a region.
    """
    if properties.signed:
        raise UserError(
            "the doubly stochastic term needs weights of at least 0, and this attention has negative ones: set the "
            "objective's doubly_stochastic to 0"
        )
    totals = unrolled.unpack(unrolled.trace.weights.float()).sum(2)
    deviations = (1 - totals).square()
    return (deviations.sum(-1) if regions == "sum" else deviations.mean(-1)) * unrolled.has_steps()
