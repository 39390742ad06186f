"""Penalties that parts of a model define, such as the number of open heads, as terms of the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from caption.decoders.base import Unrolled
from caption.objectives.base import PER_WORD, Term, Unit

if TYPE_CHECKING:
    from caption.captioner import Captioner


class Penalty(Term):
    """Base class: the penalty of a part, counted for each word."""

    def __init__(self, weight: float, per: Sequence[Unit] = PER_WORD) -> None:
        super().__init__(weight, per)

    def declared(self, unrolled: Unrolled, captioner: Captioner) -> Tensor | None:
        """The part's penalty, a mean over words; None if it has none."""
        raise NotImplementedError

    def forward(self, unrolled: Unrolled, captioner: Captioner) -> Tensor:
        declared = self.declared(unrolled, captioner)
        return unrolled.logits.new_zeros(()) if declared is None else declared * len(unrolled.positions)


class AttentionPenalty(Penalty):
    """The attention's own penalty (`Attention.penalty`), such as the overlap of queries or the number of open heads; 0
    for mechanisms without one.
    """

    name = "attention_penalty"

    def declared(self, unrolled: Unrolled, captioner: Captioner) -> Tensor | None:
        return captioner.decoder.penalty(unrolled.trace.maps)


class RefinerPenalty(Penalty):
    """The refiner's own penalty (`Refiner.penalty`), such as the number of open heads; 0 for refiners without one."""

    name = "refiner_penalty"

    def declared(self, unrolled: Unrolled, captioner: Captioner) -> Tensor | None:
        return None if captioner.refiner is None else captioner.refiner.penalty()
