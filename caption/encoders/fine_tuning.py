"""Fine-tuning of the encoder: the statistics of its BatchNorm layers."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from caption.core.errors import UserError


class FrozenStatistics(Callback):
    """The encoder's BatchNorm layers keep the mean and variance of their weights; scale and shift learn.

    Without it, a layer that learns normalises by the batch's own statistics, which are noisy in small batches, and is
    tested with their moving average, which with a small momentum lags behind for epochs.
    """

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        encoder: Any = pl_module.captioner.encoder  # type: ignore[union-attr]
        for layer in encoder.modules():  # the end of a validation has set them to train
            if isinstance(layer, _BatchNorm):
                layer.eval()


def batch_norm_warning(encoder: nn.Module, device: str) -> str | None:
    """The warning before an encoder learns in several processes on devices of a type such as "cuda", or None.

    Raises:
        UserError: the encoder has synchronised BatchNorm, which torch does not have for this device.
    """
    layers = [layer for layer in encoder.modules() if isinstance(layer, _BatchNorm)]
    synchronised = any(isinstance(layer, nn.SyncBatchNorm) for layer in layers)
    if synchronised and device == "cpu":
        raise UserError(
            "torch has no synchronised BatchNorm for CPUs: leave out trainer.sync_batchnorm, train the encoder in one "
            "process, or keep it frozen (no model.encoder_learning_rate)"
        )
    if synchronised or not layers:
        return None
    remedy = "synchronise them with --trainer.sync_batchnorm true"
    if device == "cpu":
        remedy = "torch synchronises them only on GPUs"
    return (
        "the encoder learns, and its BatchNorm layers compute their statistics from each process's own images: the "
        f"result differs from that of one process with the whole batch; {remedy}"
    )
