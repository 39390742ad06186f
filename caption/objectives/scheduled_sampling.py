"""Scheduled sampling: in training, the decoder is fed some of its own words instead of those of the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from caption.attention.maps import categorical
from caption.core.batch import CaptionBatch
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.core.tensor_tree import indices
from caption.objectives.base import Loss, Objective
from caption.objectives.cross_entropy import CrossEntropy
from caption.text.vocabulary import END, FORBIDDEN

if TYPE_CHECKING:
    from caption.captioner import Captioner


class ScheduledSampling(Objective):
    """Another objective, with each input word after the first replaced by a word of the model with probability ε.

    Bengio et al. 2015. The words are drawn from the model's distribution given the words of the reference, for all
    steps at once (parallel scheduled sampling, Duckworth et al. 2019), which costs a second unroll without gradient.
    Targets are still the words of the reference.

    Args:
        objective: computes the loss; None = `CrossEntropy()`.
        probability: the final ε.
        ramp: training batches in which ε rises linearly from 0.

    Raises:
        UserError: the probability is not between 0 and 1, or `ramp` is negative.
    """

    batches: Tensor

    def __init__(self, objective: Objective | None = None, probability: float = 0.25, ramp: int = 0) -> None:
        super().__init__()
        if not 0 <= probability <= 1 or ramp < 0:
            raise UserError(f"probability {probability} must be between 0 and 1, and ramp {ramp} at least 0")
        self.objective = objective or CrossEntropy()
        self.probability = probability
        self.ramp = ramp
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))  # restored when training resumes

    def forward(self, captioner: Captioner, views: Views, captions: CaptionBatch) -> Loss:
        if not self.training:
            return self.objective(captioner, views, captions)
        progress = (self.batches / self.ramp).clamp(max=1) if self.ramp else torch.ones_like(self.batches)
        probability = self.probability * progress
        self.batches += 1
        loss = self.objective(captioner, views, _mixed(captioner, views, captions, probability))
        return loss._replace(logged=loss.logged | {"scheduled_sampling": probability})


@torch.no_grad()
def _mixed(captioner: Captioner, views: Views, captions: CaptionBatch, probability: Tensor) -> CaptionBatch:
    """The captions with some of their input words drawn from the model."""
    unrolled = captioner.unroll(views, captions.words, captions.lengths)
    logits = unrolled.logits.float()
    logits = logits.index_fill(1, indices((*FORBIDDEN, END), logits.device), -torch.inf)
    drawn = unrolled.unpack(categorical(logits.softmax(-1)))
    words = captions.words.clone()
    replaced = captions.real() & (torch.rand(words.shape, device=words.device) < probability)
    # The word drawn at a step is the input of the next one.
    words[..., 1:] = drawn[..., :-1].where(replaced[..., 1:], words[..., 1:])
    return captions._replace(words=words)
