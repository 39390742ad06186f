"""Weight averaging: an exponential moving average (EMA) of the weights."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_lightning.callbacks import WeightAveraging
from torch.optim.swa_utils import get_ema_multi_avg_fn


class AveragedWeights(WeightAveraging):
    """w̄ ← decay · w̄ + (1 − decay) · w after every batch; w̄ is validated, saved and left at the end of training.

    Lightning's `EMAWeightAveraging` computes the same in a form whose rounding changes frozen weights, after which a
    store of precomputed regions no longer belongs to the encoder. Here weights that do not change keep every bit.

    Args:
        decay: 0 to 1; 0.999 forgets in about a thousand batches.

    Raises:
        ValueError: `decay` is outside this range.
    """

    def __init__(self, decay: float = 0.999) -> None:
        average = get_ema_multi_avg_fn(decay)

        def update(averages: Any, weights: Any, count: Any) -> None:
            average(averages, weights, count)
            for mean, weight in zip(averages, weights, strict=True):
                # The average of -0.0 and -0.0 is 0.0, which is equal and has other bits.
                if torch.equal(mean, weight):
                    mean.copy_(weight)

        super().__init__(multi_avg_fn=update)
