"""Weight averaging: an exponential moving average (EMA) of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor, nn
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
        super().__init__()
        self._average = get_ema_multi_avg_fn(decay)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if self._average_model is not None:
            # The model itself moves to the GPU later. The count of averages stays where the host reads it.
            self._average_model.module.to(trainer.strategy.root_device)

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._average_model is None or trainer.global_step <= self._latest_update_step:
            return
        begun, means, weights = bool(self._average_model.n_averaged), [], []
        for mean, weight in zip(_numbers(self._average_model.module), _numbers(pl_module), strict=True):
            if begun and mean.is_floating_point():
                means.append(mean)
                weights.append(weight)
            else:  # indices and counts, too, whose averages would be rounded
                mean.copy_(weight)
        if begun:
            self._average(means, weights, None)
        for mean, weight in zip(means, weights, strict=True):
            # The average of -0.0 and -0.0 is 0.0, which is equal and has other bits. To ask once for the whole tensor
            # would wait for the GPU.
            mean.copy_(torch.where(mean == weight, weight, mean))
        self._average_model.n_averaged += 1
        self._latest_update_step = trainer.global_step


def _numbers(model: nn.Module) -> Iterator[Tensor]:
    """The weights and buffers of a model."""
    return chain(model.parameters(), model.buffers())
