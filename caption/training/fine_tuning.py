"""Fine-tuning of the encoder: from which epoch it learns, and the statistics of its BatchNorm layers."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_warn
from torch import distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from caption.encoders.base import Encoder
from caption.errors import UserError


class FineTuning(Callback):
    """Freezes the encoder, or fine-tunes it from an epoch on.

    Args:
        encoder: the encoder of the module.
        learning_rate: None = the encoder stays frozen.
        from_epoch: first epoch of fine-tuning, counted from 0.
    """

    def __init__(self, encoder: Encoder, learning_rate: float | None, from_epoch: int = 0) -> None:
        self.encoder = encoder
        self.learning_rate = learning_rate
        self.from_epoch = from_epoch
        self.freeze(epoch=0)

    def learns(self, epoch: int) -> bool:
        """Whether the encoder learns in an epoch."""
        return self.learning_rate is not None and epoch >= self.from_epoch

    def freeze(self, epoch: int) -> None:
        """Freeze the encoder, or unfreeze it if it learns in this epoch."""
        self.encoder.freeze(not self.learns(epoch))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.datamodule.store is not None and self.learning_rate is not None:  # type: ignore[attr-defined]
            raise UserError(
                "the encoder cannot be fine-tuned on precomputed regions: leave out data.features, or "
                "model.encoder_learning_rate"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A run that was stopped inside an epoch does not start that epoch again.
        self.freeze(trainer.current_epoch)
        frozen_statistics = any(isinstance(callback, FrozenStatistics) for callback in trainer.callbacks)  # type: ignore[attr-defined]
        if trainer.world_size > 1 and self.learning_rate is not None and not frozen_statistics:
            warning = batch_norm_warning(self.encoder, trainer.strategy.root_device.type)
            if warning is not None:
                rank_zero_warn(warning)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.freeze(trainer.current_epoch)

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # DistributedDataParallel averages only gradients of parameters that were trainable when it was created, not of
        # those unfrozen later.
        unfrozen_late = self.from_epoch > 0 and self.learns(trainer.current_epoch)
        if unfrozen_late and trainer.world_size > 1:
            for parameter in self.encoder.parameters():
                if parameter.grad is not None:
                    distributed.all_reduce(parameter.grad)
                    parameter.grad /= trainer.world_size


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
    remedy = (
        "torch synchronises them only on GPUs"
        if device == "cpu"
        else "synchronise them with --trainer.sync_batchnorm true"
    )
    return (
        "the encoder learns, and its BatchNorm layers compute their statistics from each process's own images: the "
        f"result differs from that of one process with the whole batch; {remedy}"
    )
