"""The doubly stochastic regularisation of soft attention (Xu et al. 2015, section 4.2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from caption.core.errors import UserError
from caption.decoders.base import Unrolled
from caption.objectives.base import Term

if TYPE_CHECKING:
    from caption.captioner import Captioner


class DoublyStochastic(Term):
    """Σ_i (1 − Σ_t α[t,i])², which encourages equal attention to every region (eq. 14).

    Σ_i is over the regions that are not masked, Σ_t over the real steps. With fewer steps than regions the sum over i
    cannot be 0: T steps over L regions give at least L (1 − T/L)².

    Raises:
        UserError: weights may be negative, so that their sum does not measure attention to a region.
    """

    name = "doubly_stochastic"

    def forward(self, unrolled: Unrolled, captioner: Captioner) -> Tensor:
        if captioner.decoder.properties.signed:
            raise UserError(
                "the doubly stochastic term needs weights of at least 0, but this attention has negative ones: remove "
                "DoublyStochastic from the objective's terms (terms: [] removes all)"
            )
        totals = unrolled.unpack(unrolled.trace.weights.float()).sum(2)
        squares = (1 - totals).square()
        if unrolled.real is not None:
            squares = squares * unrolled.real[:, None]
        return (squares.sum(-1) * unrolled.has_steps()).sum()
