"""Diagnostics of attention in training: statistics of a batch's maps, and a warning when they stop moving."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.map_entropy import change, entropy
from caption.core.regions import WeightProperties
from caption.core.runtime.distributed import mean
from caption.decoders.base import Unrolled


@torch.no_grad()
def diagnose(unrolled: Unrolled, properties: WeightProperties) -> dict[str, Tensor]:
    """Compute statistics of a batch's attention maps, without padding. When several processes train, each computes its
    share, and the mean of the shares is the statistic of the whole batch.

    Returns:
        "attention_entropy": mean H[α[t]] over all words, in nats; log L for uniform maps. "attention_change": mean over
        neighbouring words of ½ Σ_i |α[t,i] − α[t-1,i]|, the share of the attention that moved, 0 to 1. "coverage_min",
        "coverage_max": minimum and maximum over the regions of Σ_t α[t,i]; mean over captions.
    """
    weights = unrolled.trace.weights.detach().float()
    maps = unrolled.unpack(weights)  # (B, K, T, L)
    real = unrolled.unpack(torch.ones_like(unrolled.positions, dtype=torch.bool))
    pairs = real[..., 1:]  # True where a step has a previous step
    moved = change(maps[..., 1:, :], maps[..., :-1, :])
    coverage = maps.sum(2)[unrolled.has_steps()]  # (captions, L)
    words, neighbours, captions = mean(torch.stack([real.sum(), pairs.sum(), unrolled.has_steps().sum()]))
    return {
        "attention_entropy": entropy(weights, properties).sum() / words,
        "attention_change": (moved * pairs).sum() / neighbours.clamp_min(1),
        "coverage_min": coverage.amin(-1).sum() / captions,
        "coverage_max": coverage.amax(-1).sum() / captions,
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
