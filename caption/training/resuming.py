"""Resuming: a stopped run goes on from its last checkpoint, bit for bit as if it had never stopped."""

from __future__ import annotations

import copy
import re
import signal
import time
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor
from torch.optim import Optimizer

from caption.core.errors import CheckpointError, Stopped, UserError, kind_and_reason
from caption.core.runtime.atomic_files import MARK, delete, is_own, make_parents, replacing_own
from caption.core.runtime.signals import StopRequest, name_of
from caption.models import checkpoint as checkpoint_files
from caption.training.defaults import LAST
from caption.training.early_stopping import has_stopped
from caption.training.lightning_state import (
    complete_epoch,
    ends_inside_epoch,
    is_number,
    restart_validation,
    validates_next,
)

SECONDS = {"second": 1, "minute": 60, "hour": 3600}


class LastCheckpoint(Checkpoint):
    """Writes last.ckpt after each epoch, inside long epochs, and when a signal stops the run.

    Model, optimizer, schedulers, gradient scaler, baselines and the counts of early stopping are in the file, with the
    place inside the epoch. Random numbers are a function of seed, epoch and batch, so their state is not needed.

    On Ctrl-C, SIGTERM, SIGHUP and SIGUSR1, training completes its step, writes the file, and raises `Stopped`. The
    file is written between two optimizer steps; in validation, before which it restarts; but not between training and
    validation, because Lightning would leave that validation out.

    If `max_steps`, `max_time` or early stopping ends training inside an epoch, the file has that place, and a longer
    training reads the rest of the epoch first.

    Args:
        folder: where to write it.
        every: the longest time between two files: "10 minutes" (or seconds, hours), "500 steps", or "epoch" for one
            file after each epoch.

    Raises:
        UserError: `every` is none of these.
    """

    def __init__(self, folder: str, every: str = "10 minutes") -> None:
        self.path = Path(folder) / LAST
        self.steps, self.seconds = _interval(every)
        self.stop = StopRequest()
        self.trained_seconds = 0.0
        """Time spent in training, over all runs."""
        self._metrics: dict[str, Tensor] = {}
        self._accumulating = False
        self._in_validation = False
        self._ends_inside_epoch = False
        self._ends_after_step = False

    # -- when it is written ---------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A run that early stopping has ended stays finished.
        if any(map(has_stopped, trainer.early_stopping_callbacks)):
            trainer.should_stop = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._ends_inside_epoch = self._ends_after_step = False
        # Early stopping and the best checkpoint look at the last validation also in epochs that have none.
        trainer.callback_metrics.update(self._metrics)
        self._saved_step = self._step = trainer.global_step
        self._clock = self._saved_at = time.monotonic()
        self.stop.install()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._saved_step == trainer.global_step > 0:
            self._stop_if_requested(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._accumulating, self._step = trainer.global_step == self._step, trainer.global_step
        if self._accumulating:
            # Training ends between two steps. `Timer` asks for it again after the next batch.
            trainer.should_stop = False
            return
        trainer.should_stop |= self._ends_after_step
        if ends_inside_epoch(trainer):
            self._ends_inside_epoch = True
            self._save(trainer)
        elif not (trainer.is_last_batch or validates_next(trainer)):
            self._save_if_due(trainer)

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking and not self._accumulating:
            self._in_validation = True
            try:
                self._save_if_due(trainer)
            finally:  # also when a signal stops training here
                self._in_validation = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Early stopping has decided by now, since Lightning calls checkpoint callbacks last.
        in_training = trainer.state.fn == "fit" and not trainer.sanity_checking
        if in_training and self._accumulating and trainer.should_stop:
            trainer.should_stop, self._ends_after_step = False, True
        if in_training and not self._ends_inside_epoch and ends_inside_epoch(trainer):
            self._ends_inside_epoch = True
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._ends_inside_epoch:
            self._save(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stop.restore()
        self._stop_if_requested(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.stop.restore()

    def _save_if_due(self, trainer: Trainer) -> None:
        steps = trainer.global_step - self._saved_step
        due = steps >= self.steps or time.monotonic() - self._saved_at >= self.seconds
        wanted = (due and steps > 0) or self.stop.received is not None
        # All processes write together, or none.
        if trainer.strategy.reduce_boolean_decision(wanted, all=False):
            if steps > 0:
                self._save(trainer)
            self._stop_if_requested(trainer)

    def _stop_if_requested(self, trainer: Trainer) -> None:
        if trainer.strategy.reduce_boolean_decision(self.stop.received is not None, all=False):
            number = self.stop.received or signal.SIGTERM  # another process has received it
            where = f"after step {trainer.global_step}, in epoch {trainer.current_epoch}"
            raise Stopped(number, f"stopped by {name_of(number)} {where}; the state is in {self.path}")

    # -- what is in it --------------------------------------------------------------------------------------------

    def _save(self, trainer: Trainer) -> None:
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        now = time.monotonic()
        self.trained_seconds += now - self._clock
        self._clock = now
        trainer.save_checkpoint(self.path, weights_only=False)
        self._saved_step, self._saved_at = trainer.global_step, time.monotonic()

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["metrics"] = {name: value.cpu() for name, value in trainer.callback_metrics.items()}
        if self._in_validation:
            restart_validation(checkpoint)
            if "current_model_state" in checkpoint:  # WeightAveraging has exchanged them for the validation
                averaged, current = checkpoint["current_model_state"], checkpoint["state_dict"]
                checkpoint["state_dict"], checkpoint["current_model_state"] = averaged, current

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._metrics = checkpoint.get("metrics", {})
        if not all(map(is_number, self._metrics.values())):
            raise ValueError("metrics are not numbers")
        for early_stopping in trainer.early_stopping_callbacks:
            if (state := checkpoint["callbacks"].get(early_stopping.state_key)) is not None:
                # The configuration's patience: more of it continues a run.
                state["patience"] = early_stopping.patience
        if trainer.max_steps != -1:
            complete_epoch(checkpoint)

    def state_dict(self) -> dict[str, Any]:
        return {"trained_seconds": self.trained_seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.trained_seconds = state_dict["trained_seconds"]


def _interval(every: str) -> tuple[float, float]:
    """Steps and seconds; infinite where there is no such limit."""
    infinite = float("inf")
    if every == "epoch":
        return infinite, infinite
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *(step|second|minute|hour)s?", every.strip())
    if match is None or float(match[1]) <= 0:
        raise UserError(
            f"a checkpoint cannot be written every {every!r}: give a time, such as '10 minutes', a number of steps, "
            "such as '500 steps', or 'epoch' for one after each epoch"
        )
    number, unit = float(match[1]), match[2]
    return (number, infinite) if unit == "step" else (infinite, number * SECONDS[unit])


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint beside its place and renames it, so that the last good one always loads.

    Lightning's own writer moves it from the folder of temporary files, often another file system: the move is then a
    copy, and a kill or a full disk leaves a part of the file. It also deletes whatever has a checkpoint's name, whole
    folders, too. Here only checkpoints that training has written are replaced and deleted, by their mark.

    Reads with `checkpoint.read`, so everything that Lightning restores has been checked. Models without training state,
    safetensors files among them, can be evaluated.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        make_parents(Path(path))
        with replacing_own(path) as file:
            torch.save({"written_by": MARK, **checkpoint}, file)  # first, where `is_own` finds it

    def remove_checkpoint(self, path: Any) -> None:
        if is_own(Path(path)):
            delete(Path(path))

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        # The version of Lightning is the installed one, or Lightning would convert the file from another one's layout.
        return checkpoint_files.read(path) | {"pytorch-lightning_version": version("pytorch-lightning")}


def check_optimizer_state(contents: dict[str, Any], path: object, optimizer: Optimizer) -> None:
    """Check that an optimizer can load the state to be resumed and step with it: `load_state_dict` checks no values.

    The step changes the optimizer's parameters, so it must precede the loading of the weights.

    Args:
        contents: of the checkpoint.
        path: of the checkpoint, for messages.
        optimizer: is not used afterwards; has a second group if and only if the encoder is fine-tuned.

    Raises:
        CheckpointError: there is no state, or it does not fit.
    """
    if "optimizer_states" not in contents:
        raise CheckpointError(
            "the checkpoint is a model without training state, which cannot be resumed: start from its weights "
            "with model.warm_start"
        )
    try:
        state = contents["optimizer_states"][0]
        stored, configured = len(state["param_groups"]), len(optimizer.param_groups)
        if stored == configured:
            options = [
                {name: value for name, value in group.items() if name != "params"}
                for group in optimizer.param_groups
            ]
            optimizer.load_state_dict(copy.deepcopy(state))  # whose tensors the step changes in place
            for group, configured_options in zip(optimizer.param_groups, options, strict=True):
                group |= configured_options  # which a resumed training takes, see `adopt_rates`
            for parameter in chain.from_iterable(group["params"] for group in optimizer.param_groups):
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step(lambda: 0.0)
            optimizer.zero_grad()
    except Exception as error:
        raise CheckpointError(
            f"{path}: the optimizer's state in it is malformed or does not fit model.optimizer "
            f"({kind_and_reason(error)}): resume with the optimizer of that training, or start from its weights with "
            "model.warm_start"
        ) from error
    if stored != configured:
        was, remedy = ("frozen", "leave out") if stored < configured else ("fine-tuned", "set")
        raise CheckpointError(
            f"the encoder was {was} when the checkpoint was written: {remedy} model.encoder_learning_rate to "
            "resume it, or start from its weights with model.warm_start"
        )
