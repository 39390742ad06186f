"""The loss of soft attention: cross-entropy and the doubly stochastic term, eq. 14."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from caption.core.batch import CaptionBatch
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.objectives.base import (
    PER_CAPTION,
    PER_WORD,
    Loss,
    Objective,
    Term,
    Unit,
    check_units,
    count_elements,
    word_log_likelihoods,
)
from caption.objectives.doubly_stochastic import DoublyStochastic

if TYPE_CHECKING:
    from caption.captioner import Captioner


class CrossEntropy(Objective):
    """L_d = −log p(y|a) + λ Σ_i (1 − Σ_t α[t,i])², summed over a caption's words and averaged over captions (eq. 14).

    It also trains `GumbelSoftmax` attention, whose samples have a gradient.

    Args:
        terms: added to −log p; None = `DoublyStochastic()`, as in eq. 14.
        label_smoothing: share of each target that is spread uniformly over all words (Szegedy et al. 2016); 0 in the
            paper.
        per: the elements that −log p is divided by (see `Term`); ("word",) = a mean over all words of the batch.

    Raises:
        UserError: `label_smoothing` is not a share from 0 up to, but without, 1; `per` has another unit.
    """

    def __init__(
        self,
        terms: list[Term] | None = None,
        label_smoothing: float = 0.0,
        per: Sequence[Unit] = PER_CAPTION,
    ) -> None:
        super().__init__()
        check_units(per)
        if not 0 <= label_smoothing < 1:
            raise UserError(f"label_smoothing must be at least 0 and below 1, not {label_smoothing}")
        self.terms: Sequence[Term] = nn.ModuleList([DoublyStochastic()] if terms is None else terms)  # type: ignore[assignment]
        self.label_smoothing = label_smoothing
        self.per = per

    def forward(self, captioner: Captioner, views: Views, captions: CaptionBatch) -> Loss:
        unrolled = captioner.unroll(views, captions.words, captions.lengths)
        if unrolled.trace.log_prob is not None:
            raise UserError(
                "cross-entropy has no gradient for sampled attention: train Multinoulli attention with the "
                "objective caption.objectives.Reinforce, or sample with caption.attention.GumbelSoftmax"
            )
        nll = smoothed = -word_log_likelihoods(unrolled, captions.targets).sum()
        if self.label_smoothing:
            uniform = -unrolled.logits.float().log_softmax(-1).mean(-1).sum()
            smoothed = (1 - self.label_smoothing) * nll + self.label_smoothing * uniform
        elements = count_elements(captions, unrolled)
        value = elements.mean(smoothed, self.per)
        value, means = elements.add_terms(value, self.terms, unrolled, captioner)
        return Loss(value, {"NLL": elements.mean(nll.detach(), PER_WORD), **means}, unrolled)
