"""The checkpoint from which a stopped run goes on, bit for bit as if it had never stopped."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

# isort: split
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason
from torch import Tensor

from caption.errors import Stopped, UserError
from caption.runtime.signals import StopRequest, name_of

LAST = "last.ckpt"
SECONDS = {"second": 1, "minute": 60, "hour": 3600}


class LastCheckpoint(Checkpoint):
    """Writes last.ckpt after each epoch, inside long epochs, and when a signal stops the run.

    Model, optimizer, schedulers, gradient scaler, baselines and the counts of early stopping are in the file, with the
    place inside the epoch. Random numbers are a function of seed, epoch and batch, so their state is not needed.

    On Ctrl-C, SIGTERM, SIGHUP and SIGUSR1, training completes its step, writes the file, and raises `Stopped`. The
    file is written between two optimizer steps; in validation, before which it restarts; but not between training and
    validation, because Lightning would leave that validation out.

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
        self._clock = self._saved_at = 0.0
        self._saved_step = self._step = 0
        self._metrics: dict[str, Tensor] = {}
        self._accumulating = False
        self._in_validation = False

    # -- when -----------------------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A finished run that is resumed is finished.
        for stopper in trainer.early_stopping_callbacks:
            reason = stopper.stopping_reason
            exhausted = reason == EarlyStoppingReason.PATIENCE_EXHAUSTED
            if reason != EarlyStoppingReason.NOT_STOPPED and not (
                exhausted and stopper.wait_count < stopper.patience  # it has been raised since
            ):
                trainer.should_stop = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
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
        ends = trainer.is_last_batch or trainer.global_step == trainer.max_steps
        if not (self._accumulating or ends or _validates_next(trainer)):
            self._save_if_due(trainer)

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking and not self._accumulating:
            self._in_validation = True
            try:
                self._save_if_due(trainer)
            finally:
                self._in_validation = False

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
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

    # -- what -----------------------------------------------------------------------------------------------------

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
            # As if validation were at its first image: Lightning goes on behind the images that are counted here, and
            # their captions would be missing.
            progress = checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]
            for count in (progress["total"], progress["current"]):
                count |= {"ready": 1, "started": 1, "processed": 0, "completed": 0}
            progress["is_last_batch"] = False

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._metrics = checkpoint.get("metrics", {})
        for stopper in trainer.early_stopping_callbacks:
            if (state := checkpoint["callbacks"].get(stopper.state_key)) is not None:
                state["patience"] = stopper.patience  # of the configuration: more of it continues a run
        for keeper in trainer.checkpoint_callbacks:
            state = checkpoint["callbacks"].get(keeper.state_key)
            if isinstance(keeper, ModelCheckpoint) and state is not None:
                _follow(state, str(keeper.dirpath))
        loops = checkpoint["loops"]["fit_loop"]
        epoch = loops["epoch_progress"]
        if trainer.max_steps != -1 and epoch["current"]["processed"] == epoch["current"]["ready"]:
            # A run with max_steps would otherwise end the epoch, which the file says has ended, once more.
            for count in (epoch["total"], epoch["current"]):
                count["completed"] = count["processed"]
            batches = loops["epoch_loop.batch_progress"]
            batches["current"] = dict.fromkeys(batches["current"], 0)
            batches["is_last_batch"] = False
            loops["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1  # Lightning adds 1

    def state_dict(self) -> dict[str, Any]:
        return {"trained_seconds": self.trained_seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.trained_seconds = state_dict["trained_seconds"]


def _follow(state: dict[str, Any], folder: str) -> None:
    """Adapt the state of a `ModelCheckpoint` to the folder to which the run has been moved.

    Lightning would forget the best score, and replace the best checkpoint by the next one.
    """
    best = Path(folder) / Path(state["best_model_path"]).name
    if state["dirpath"] == folder or not best.is_file():
        return
    before = state["dirpath"]

    def moved(path: str) -> str:
        return (
            str(Path(folder) / Path(path).relative_to(before)) if Path(path).is_relative_to(before) else path
        )

    for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
        state[name] = moved(state[name])
    state["best_k_models"] = {moved(path): score for path, score in state["best_k_models"].items()}
    state["dirpath"] = folder


def _validates_next(trainer: Trainer) -> bool:
    """Whether validation comes between this batch and the next."""
    loop = trainer.fit_loop
    assert loop._data_fetcher is not None
    return loop.epoch_loop._should_check_val_fx(loop._data_fetcher)


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
