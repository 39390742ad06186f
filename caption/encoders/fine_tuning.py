"""Freezing and fine-tuning: which weights of an encoder are trained, and whether BatchNorm keeps its statistics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from caption.core.errors import UserError


class Freezable(nn.Module):
    """A module that can be frozen, or fine-tuned from one of its modules on.

    A frozen module computes no gradients and stays in evaluation mode even if its parent module is in training mode, so
    that its BatchNorm statistics do not change.
    """

    frozen: bool = False
    frozen_statistics: bool = False
    """Whether BatchNorm layers keep their mean and variance in fine-tuning; to be set before `freeze(False)`.

    Otherwise training uses the statistics of the batch, which are noisy in small batches, and evaluation their moving
    average, which lags behind for epochs if the momentum is small."""

    def fixed_modules(self) -> Collection[nn.Module]:
        """The modules that stay frozen when the others are trained. By default none."""
        return ()

    def freeze(self, frozen: bool = True) -> None:
        """Freeze or unfreeze parameters, BatchNorm statistics and dropout.

        Unfreezing also switches to training mode: the module does not know the mode of its parent, and Lightning
        restores modes after validation without calling `train`.
        """
        unfreezing = self.frozen and not frozen
        self.frozen = frozen
        self.requires_grad_(False)
        fixed = self.fixed_modules()
        for module in () if frozen else self.modules():
            if module not in fixed:
                for parameter in module.parameters(recurse=False):
                    parameter.requires_grad_(True)
        self.train(unfreezing or self.training)

    def train(self, mode: bool = True) -> Self:
        """Switch to training or evaluation mode. Frozen modules stay in evaluation mode."""
        super().train(mode and not self.frozen)
        if self.training:
            fixed = self.fixed_modules()
            for module in self.modules():
                if module in fixed or (self.frozen_statistics and isinstance(module, _BatchNorm)):
                    module.training = False
        return self


def modules_before(trunk: nn.Module, name: str) -> set[nn.Module]:
    """The modules of a trunk before the one called `name`, in the order of `named_modules`; all if no module is."""
    before = set()
    for inner, module in trunk.named_modules():
        if f"{inner}.".startswith(f"{name}."):
            break
        before.add(module)
    return before


def batch_norm_warning(encoder: nn.Module, device: str) -> str | None:
    """The warning before an encoder is trained in several processes on devices of a type such as "cuda", or None.

    Raises:
        UserError: the encoder has synchronised BatchNorm, which torch does not support on this device.
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
        "the encoder is trained, and its BatchNorm layers compute their statistics from the images of each process, so "
        f"the result differs from that of one process with the whole batch; {remedy}"
    )
