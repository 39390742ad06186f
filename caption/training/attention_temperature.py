"""A temperature of the attention's scores that falls to 1 early in training."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from caption.attention.scored import Score
from caption.core.errors import UserError


class AttentionTemperature(Callback):
    """Divides scores by τ in training; τ falls geometrically from `start` to 1, where it stays.

    In the first steps, a bilinear score or a sparse alignment gives nearly all weight to some place that the features'
    scale prefers, before the decoder has learned a word. The others get little or no gradient, and chance decides
    whether the maps recover (docs/results/seeds.md). At a high temperature weights begin even.

    Only training sees the temperature: validation and saved models have 1. It depends on the step alone, so a resumed
    training continues it. It applies to all mechanisms made of a `caption.attention.Score`.

    Args:
        start: τ of the first step, at least 1; 1 = no temperature.
        share: share of the planned steps in which it falls, above 0, at most 1.

    Raises:
        UserError: an argument is outside its range. In training: no score to divide, or no planned end.
    """

    def __init__(self, start: float = 1.0, share: float = 0.25) -> None:
        if not 1 <= start < float("inf"):
            raise UserError(f"attention_temperature.start {start} must be a number of at least 1")
        if not 0 < share <= 1:
            raise UserError(f"attention_temperature.share {share} must be above 0 and at most 1")
        self.start = start
        self.share = share
        self._steps = 1.0
        self._inverse = torch.ones(())
        self._handles: list[RemovableHandle] = []

    def temperature(self, step: int) -> float:
        """τ of an optimizer step, counted from 0."""
        return float(self.start ** max(0.0, 1 - step / self._steps))

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Hook all scores of the decoder, and take τ's steps from the planned ones. A start of 1 does nothing."""
        if self.start == 1:
            return
        steps = trainer.estimated_stepping_batches
        if steps == float("inf"):
            raise UserError(
                "attention_temperature falls during a share of the training, and this one has no planned end: give "
                "trainer.max_epochs or trainer.max_steps"
            )
        self._steps = self.share * steps
        # A tensor, because compiled code would be compiled anew for every other number.
        self._inverse = torch.ones((), device=pl_module.device)
        attentions = pl_module.captioner.decoder.attentions.values()
        parts = {part for attention in attentions for part in attention.modules() if isinstance(part, Score)}
        self._handles = [part.register_forward_hook(self._divide) for part in parts]
        if not self._handles:
            raise UserError(
                "attention_temperature.start is above 1, and the decoder has no score (caption.attention.Score) to "
                "divide by it: leave it out"
            )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        temperature = self.temperature(trainer.global_step)
        self._inverse.fill_(1 / temperature)
        if temperature == 1:  # to the end; with hooks the decoder would not take its faster form
            self._remove()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._remove()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._remove()  # Lightning tears nothing down then

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _divide(self, score: nn.Module, inputs: Any, scores: Tensor) -> Tensor:
        return scores * self._inverse if score.training else scores
