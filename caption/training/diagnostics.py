"""Is the attention alive? Numbers of a training batch's maps, and a warning when they stop moving."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention.weights import change, entropy
from caption.decoders.base import Unrolled
from caption.result import WeightProperties


@torch.no_grad()
def diagnose(unrolled: Unrolled, properties: WeightProperties) -> dict[str, Tensor]:
    """Scalars that tell how a batch's attention is doing, padding left out.

    Returns:
        "attention_entropy": mean H[α[t]] over all words, in nats; log L is looking everywhere.
        "attention_change": mean over neighbouring words of ½ Σ_i |α[t,i] − α[t-1,i]|, the share of the attention that
            moved, 0 to 1.
        "coverage_min", "coverage_max": Σ_t α[t,i] of the region that a caption looked at least, and most; mean over
            captions.
    """
    weights = unrolled.trace.weights.detach().float()
    maps = unrolled.unpack(weights)  # (B, K, T, L)
    real = unrolled.unpack(torch.ones_like(unrolled.positions, dtype=torch.bool))
    pairs = real[..., 1:]  # a step is followed by none or by the next
    moved = change(maps[..., 1:, :], maps[..., :-1, :])
    coverage = maps.sum(2)[unrolled.has_steps()]  # (captions, L)
    return {
        "attention_entropy": entropy(weights, properties).mean(),
        "attention_change": (moved * pairs).sum() / pairs.sum().clamp_min(1),
        "coverage_min": coverage.amin(-1).mean(),
        "coverage_max": coverage.amax(-1).mean(),
    }


class StillMaps:
    """Notices attention that looks at the same places for every word, and then explains nothing.

    It happens to hard attention above all: once all samples fall on one region, no estimator can learn that another
    would be better. One batch says little, so windows of batches are judged by their mean.

    Args:
        threshold: least share of the attention that should move from word to word.
        window: batches whose mean is judged.
        patience: windows below the threshold, one after the other, before the warning.
    """

    def __init__(self, threshold: float = 0.01, window: int = 100, patience: int = 3) -> None:
        self.threshold = threshold
        self.window = window
        self.patience = patience
        self.changes: list[Tensor] = []
        self.still = 0

    def watch(self, change: Tensor) -> str | None:
        """Takes a batch's "attention_change"; the warning, once, when it is due."""
        self.changes.append(change)
        if len(self.changes) < self.window:
            return None
        mean = torch.stack(self.changes).mean().item()  # one wait for the GPU in a window
        self.changes.clear()
        self.still = self.still + 1 if mean < self.threshold else 0
        if self.still != self.patience:
            return None
        return (
            f"the attention maps have stopped moving: from word to word {mean:.2%} of the attention changed place in "
            f"the last {self.window} batches. Such maps explain no word. Start from a trained soft model "
            "(model.warm_start), raise the objective's entropy_weight or lower its reward_weight or the learning rate."
        )
