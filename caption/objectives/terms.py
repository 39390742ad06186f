"""Terms of a loss beside −log p, each a sum over the elements of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from caption.attention.map_entropy import entropy
from caption.decoders.base import Decoder, Unrolled
from caption.errors import UserError
from caption.objectives.base import PER_CAPTION, PER_WORD, Elements, Unit, check_units
from caption.parts import Part


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

    def forward(self, unrolled: Unrolled, decoder: Decoder) -> Tensor:
        """Σ over the elements of this process's batch, a scalar with gradient.

        Args:
            unrolled: the decoder's output for the captions.
            decoder: declares the properties of its weights, and the penalty of its attention.
        """
        raise NotImplementedError


class DoublyStochastic(Term):
    """Σ_i (1 − Σ_t α[t,i])², which encourages equal attention to every region (eq. 14).

    Σ_t runs over real steps only. With fewer steps than regions the sum over i cannot reach 0: T steps over L regions
    give at least L (1 − T/L)².

    Raises:
        UserError: weights may be negative, so that their sum does not measure attention to a region.
    """

    name = "doubly_stochastic"

    def forward(self, unrolled: Unrolled, decoder: Decoder) -> Tensor:
        if decoder.properties.signed:
            raise UserError(
                "the doubly stochastic term needs weights of at least 0, and this attention has negative ones: take "
                "DoublyStochastic out of the objective's terms (terms: [] leaves none)"
            )
        totals = unrolled.unpack(unrolled.trace.weights.float()).sum(2)
        return ((1 - totals).square().sum(-1) * unrolled.has_steps()).sum()


class Entropy(Term):
    """Σ_t H[α[t]], in nats. A weight above 0 makes the maps sharper; one below 0 rewards spread maps.

    Args:
        weight: λ.
        after: training batches before the term starts. A cost of entropy early in training, when all regions are
            equally useful, would fix all maps on one region permanently.
        per: see `Term`.
    """

    name = "entropy"
    batches: Tensor

    def __init__(self, weight: float, after: int = 0, per: Sequence[Unit] = PER_CAPTION) -> None:
        super().__init__(weight, per)
        self.after = after
        if after:
            # Training batches so far; restored when training resumes.
            self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, unrolled: Unrolled, decoder: Decoder) -> Tensor:
        started = not self.after or bool(self.batches >= self.after)
        if self.training and self.after:
            self.batches += 1
        weights = unrolled.trace.weights
        return entropy(weights, decoder.properties).sum() if started else weights.new_zeros(())


class AttentionPenalty(Term):
    """The attention's own penalty (`Attention.penalty`) of each word, such as the overlap of queries or the number of
    open heads; 0 for mechanisms without one.
    """

    name = "attention_penalty"

    def __init__(self, weight: float, per: Sequence[Unit] = PER_WORD) -> None:
        super().__init__(weight, per)

    def forward(self, unrolled: Unrolled, decoder: Decoder) -> Tensor:
        penalty = decoder.penalty(unrolled.trace.maps)  # a mean over words
        return unrolled.trace.weights.new_zeros(()) if penalty is None else penalty * len(unrolled.positions)


def add_terms(
    value: Tensor, terms: Iterable[Term], decoder: Decoder, unrolled: Unrolled, elements: Elements
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss with its terms, and the mean of each term without gradient, by name."""
    means = {}
    for term in terms:
        mean = elements.mean(term(unrolled, decoder), term.per)
        means[term.name] = mean.detach()
        value = value + term.weight * mean
    return value, means
