"""Diagnostics of attention in training: statistics of a batch's maps, and a warning when they stop moving."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from caption.attention.map_entropy import change, entropy
from caption.core.batch import Batch
from caption.core.regions import WeightProperties
from caption.core.runtime.distributed import mean, mean_of_each


class AttentionDiagnostics(Callback):
    """Logs the statistics of `diagnose` for every training batch, and warns once if the maps have stopped moving.

    The module's `training_step` returns the maps beside the loss.

    Args:
        still_maps: decides when to warn; None = `StillMaps()`.
    """

    def __init__(self, still_maps: StillMaps | None = None) -> None:
        self.still_maps = still_maps or StillMaps()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        decoder = pl_module.captioner.decoder
        numbers = mean_of_each(diagnose(outputs["weights"], outputs["real"], decoder.properties))
        logged = {f"train/{name}": value for name, value in numbers.items()}
        pl_module.log_dict(logged, batch_size=len(batch.ids))
        if decoder.attentions and (warning := self.still_maps.watch(numbers["attention_change"])):
            rank_zero_warn(warning)


@torch.no_grad()
def diagnose(weights: Tensor, real: Tensor, properties: WeightProperties) -> dict[str, Tensor]:
    """Compute statistics of a batch's attention maps, without padding. When several processes train, each computes its
    share, and the mean of the shares is the statistic of the whole batch.

    Args:
        weights: (B, K, T, L) α, 0 where there is no step.
        real: (B, K, T) bool, True where there is a step.
        properties: of the weights.

    Returns:
        "attention_entropy": mean H[α[t]] over all words, in nats; log L for uniform maps. "attention_change": mean over
        neighbouring words of ½ Σ_i |α[t,i] − α[t-1,i]|, the share of the attention that moved, 0 to 1. "coverage_min",
        "coverage_max": minimum and maximum over the regions of Σ_t α[t,i]; mean over captions.
    """
    weights = weights.float()
    present = real.any(-1)
    pairs = real[..., 1:]  # True where a step has a previous step
    moved = change(weights[..., 1:, :], weights[..., :-1, :])
    coverage = weights.sum(2)
    words, neighbours, captions = mean(torch.stack([real.sum(), pairs.sum(), present.sum()]))
    return {
        "attention_entropy": (entropy(weights, properties) * real).sum() / words,
        "attention_change": (moved * pairs).sum() / neighbours.clamp_min(1),
        # Products, because a choice by a mask would wait for the GPU.
        "coverage_min": (coverage.amin(-1) * present).sum() / captions,
        "coverage_max": (coverage.amax(-1) * present).sum() / captions,
    }


class StillMaps:
    """Detects attention maps that are the same for every word, so that they explain nothing.

    This happens mainly to hard attention: when all samples fall on one region, no estimator can learn that another
    would be better. The statistic of one batch is noisy, so it is averaged over a window of batches.

    Args:
        threshold: minimal share of the attention that should move from word to word.
        window: number of batches to average over.
        patience: consecutive windows below the threshold before the warning.
    """

    def __init__(self, threshold: float = 0.01, window: int = 100, patience: int = 3) -> None:
        self.threshold = threshold
        self.window = window
        self.patience = patience
        self.changes: list[Tensor] = []
        self.still = 0

    def watch(self, change: Tensor) -> str | None:
        """Add a batch's "attention_change"; return the warning once, when it is due."""
        self.changes.append(change)
        if len(self.changes) < self.window:
            return None
        mean = torch.stack(self.changes).mean().item()  # waits for the GPU once per window
        self.changes.clear()
        self.still = self.still + 1 if mean < self.threshold else 0
        if self.still != self.patience:
            return None
        return (
            f"the attention maps have stopped moving: from word to word {mean:.2%} of the attention changed place in "
            f"the last {self.window} batches. Such maps explain no word. Start from a trained soft model "
            "(model.warm_start), lower the weight of the objective's Entropy term (below 0 it rewards spread maps), "
            "its reward_weight, or the learning rate."
        )
