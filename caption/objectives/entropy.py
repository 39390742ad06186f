"""The entropy of attention as a term of the loss (Xu et al. 2015, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from caption.attention.map_entropy import entropy
from caption.decoders.base import Unrolled
from caption.objectives.base import PER_CAPTION, Term, Unit

if TYPE_CHECKING:
    from caption.captioner import Captioner


class Entropy(Term):
    """Σ_t H[α[t]], in nats. A weight above 0 makes the maps sharper; a weight below 0 makes them more uniform.

    With several layers, α is the mean over their maps, also for `Reinforce`, whose log-density is the sum over the
    layers' samples. So H[α] is not the entropy of what the layers sample together.

    Args:
        weight: λ.
        after: number of training batches before the term starts. A penalty on entropy early in training, when all
            regions are equally useful, would fix all maps on one region permanently.
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

    def forward(self, unrolled: Unrolled, captioner: Captioner) -> Tensor:
        total = entropy(unrolled.trace.weights, captioner.decoder.properties).sum()
        if not self.after:
            return total
        started = self.batches >= self.after
        if self.training:
            self.batches += 1
        return total.where(started, 0.0)
