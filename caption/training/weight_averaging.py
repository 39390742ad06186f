"""Weight averaging: an exponential moving average (EMA) of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import WeightAveraging
from torch.optim.swa_utils import get_ema_multi_avg_fn

from caption.core.errors import CheckpointError


def check_averages(contents: Mapping[str, Any], trainer: Trainer) -> None:
    """Check that averaged weights are not resumed without their callback: the optimizer's moments are not theirs.

    Args:
        contents: of the checkpoint.
        trainer: of the training that is to be resumed.

    Raises:
        CheckpointError: the callback is missing.
    """
    averaged = "current_model_state" in contents
    if averaged and not any(isinstance(callback, WeightAveraging) for callback in trainer.callbacks):  # type: ignore[attr-defined]
        raise CheckpointError(
            "the weights in the checkpoint are averages: resume it with the callback that averaged them, such as "
            f"--trainer.callbacks+={AveragedWeights.__module__}.{AveragedWeights.__name__}, or start from the averages "
            "with model.warm_start"
        )


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
            if not averages[0].is_floating_point():  # indices and counts, whose averages would be rounded
                for mean, weight in zip(averages, weights, strict=True):
                    mean.copy_(weight)
                return
            average(averages, weights, count)
            for mean, weight in zip(averages, weights, strict=True):
                # The average of -0.0 and -0.0 is 0.0, which is equal and has other bits. To ask once for the whole
                # tensor would wait for the GPU.
                mean.copy_(torch.where(mean == weight, weight, mean))

        super().__init__(multi_avg_fn=update)
