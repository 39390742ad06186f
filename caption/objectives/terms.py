"""Terms of a loss beside −log p, each a sum over the elements of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from caption.core.parts import Part
from caption.decoders.base import Decoder, Unrolled
from caption.encoders.refiners.base import Refiner
from caption.objectives.base import PER_CAPTION, Elements, Unit, check_units


class Term(Part, nn.Module):
    """Base class of terms. The loss gets λ Σ / N, where N counts the elements of the batch.

    Args:
        weight: λ.
        per: the elements that N counts. ("caption",) makes a mean over captions, ("caption", "region") a mean over
            captions and regions, and () an undivided sum, whose weight grows with the batch.
    """

    name: str
    """Under which Σ / N is logged."""

    def __init__(self, weight: float = 1.0, per: Sequence[Unit] = PER_CAPTION) -> None:
        super().__init__()
        check_units(per)
        self.weight = weight
        self.per = per

    def forward(self, unrolled: Unrolled, decoder: Decoder, refiner: Refiner | None = None) -> Tensor:
        """Σ over the elements of this process's batch, a scalar with gradient.

        Args:
            unrolled: the decoder's output for the captions.
            decoder: declares the properties of its weights, and the penalty of its attention.
            refiner: of the regions, which may have a penalty, too.
        """
        raise NotImplementedError


def add_terms(
    value: Tensor,
    terms: Iterable[Term],
    unrolled: Unrolled,
    elements: Elements,
    decoder: Decoder,
    refiner: Refiner | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss with its terms, and the mean of each term without gradient, by name."""
    means = {}
    for term in terms:
        mean = elements.mean(term(unrolled, decoder, refiner), term.per)
        means[term.name] = mean.detach()
        value = value + term.weight * mean
    return value, means
