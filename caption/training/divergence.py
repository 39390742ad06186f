"""Stops training when its numbers are no longer finite, before they reach a checkpoint."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from caption.core.batch import Batch
from caption.core.errors import UserError, number_of
from caption.core.runtime.atomic_files import make_parents, write_new
from caption.training.resuming import LastCheckpoint

REPORT = "diverged.json"
FAR = 5.0
"""An NLL of more than this many times that of an untrained model, log V per word, is a divergence."""


WAIT = 16
"""Steps on a GPU whose numbers are read together, because the host waits for the GPU each time."""


class Step(NamedTuple):
    """The numbers of an optimizer's step."""

    number: int
    epoch: int
    """Counted from 1."""
    batches: list[tuple[int, list[int | str]]]
    """Number and image ids of each batch of the step."""
    losses: Tensor
    """(batches,)."""
    norm: Tensor
    """Of the gradient, before clipping."""


class StopOnDivergence(Callback):
    """Raises a `UserError` for the first step whose loss or gradient is NaN or infinite: at once on a CPU, within 16
    steps on a GPU.

    The message names the step and the last checkpoint; diverged.json in the log folder has the losses and image ids of
    the step's batches. With a gradient scaler (16-mixed), a step with an infinite gradient is skipped, as the scaler
    intends, and counted. Checkpoints with weights that are not finite are refused.

    At the end of an epoch, a `UserError` is raised if the NLL per word, that of the validation if there is one, is far
    above log V, that of an untrained model.

    Logs "train/gradient_norm", before clipping, and with a scaler "train/skipped_steps".
    """

    def __init__(self) -> None:
        self.skipped: Tensor | int = 0
        self._batches: list[tuple[int, list[int | str]]] = []
        self._losses: list[Tensor] = []
        self._unread: list[Step] = []

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        self._batches.append((batch_idx, batch.ids))

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        self._losses.append(loss.detach() * trainer.accumulate_grad_batches)  # Lightning has divided it

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        batches, self._batches = self._batches, []
        losses, self._losses = torch.stack(self._losses), []
        gradients = [
            p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        norm = get_total_norm(gradients)
        pl_module.log("train/gradient_norm", norm)
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            self.skipped = self.skipped + (~norm.isfinite()).float()
            pl_module.log("train/skipped_steps", self.skipped)
            norm = torch.zeros_like(norm)
        self._unread.append(Step(trainer.global_step, trainer.current_epoch + 1, batches, losses, norm))
        if norm.device.type == "cpu" or len(self._unread) == WAIT:
            self._read(trainer)

    def _read(self, trainer: Trainer) -> None:
        """Raise for the first of the unread steps with a number that is not finite."""
        steps, self._unread = self._unread, []
        if not steps:
            return
        finite = torch.stack([step.losses.isfinite().all() & step.norm.isfinite() for step in steps]).tolist()
        # One process raises only if all do, or the others would wait for it.
        if trainer.strategy.reduce_boolean_decision(not all(finite), all=False):
            step = steps[finite.index(False)] if False in finite else steps[-1]
            report = {
                "step": step.number,
                "epoch": step.epoch,
                "gradient_norm": str(step.norm.item()),
                "batches": [
                    {"batch": number, "loss": str(loss), "ids": ids}
                    for (number, ids), loss in zip(step.batches, step.losses.tolist(), strict=True)
                ],
            }
            numbers = (
                f"the loss is {step.losses.mean().item():g} and the gradient's norm {step.norm.item():g} "
                f"{_at(step.number, step.epoch)}"
            )
            raise UserError(f"{numbers}, {_write(trainer, report)}{_remedy(trainer)}")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._read(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._read(trainer)
        metrics, untrained = trainer.callback_metrics, math.log(len(pl_module.captioner.vocabulary))
        nll = float(metrics.get("val/NLL", metrics.get("train/NLL", 0.0)))
        if not nll <= FAR * untrained:
            raise UserError(
                f"the NLL per word is {nll:.3g} {_where(trainer)}, and that of an untrained model {untrained:.3g}"
                f"{_remedy(trainer)}"
            )

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        not_finite = [name for name, value in pl_module.named_parameters() if not value.isfinite().all()]
        if not_finite:
            raise UserError(
                f"not finite {_where(trainer)}: {number_of(len(not_finite), 'tensor')} of the weights, {not_finite[0]} "
                f"first; no checkpoint is written{_remedy(trainer)}"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"skipped": int(self.skipped)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.skipped = state_dict["skipped"]


def _where(trainer: Trainer) -> str:
    return _at(trainer.global_step, trainer.current_epoch + 1)


def _at(step: int, epoch: int) -> str:
    return f"at step {step} (epoch {epoch})"


def _write(trainer: Trainer, report: dict[str, Any]) -> str:
    """Write the report of this process, and say where."""
    folder = Path(trainer.log_dir or trainer.default_root_dir)
    path = folder / (REPORT if trainer.is_global_zero else f"process_{trainer.global_rank}_{REPORT}")
    make_parents(path)
    content = f"{json.dumps(report, indent=1)}\n".encode()
    return f"for the images in {write_new(path, content)}"


def _remedy(trainer: Trainer) -> str:
    callbacks = trainer.checkpoint_callbacks
    paths = [callback.path for callback in callbacks if isinstance(callback, LastCheckpoint)]
    saved = [str(path) for path in paths if path.exists()]
    last = f"the last good checkpoint is {saved[0]}" if saved else "there is no checkpoint yet"
    remedy = "Lower the learning rate (model.optimizer.init_args.lr), or clip gradients (trainer.gradient_clip_val)"
    if trainer.precision == "16-true":
        remedy = "Half precision ends at 65,504: set trainer.precision to bf16-true, 16-mixed or 32-true"
    return f". Training has stopped; {last}. {remedy}"
