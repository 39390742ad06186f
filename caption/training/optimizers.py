"""Optimizer and learning rate schedule of a training, in the form that Lightning takes."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from caption.training.watched import Mode, mode_of


def make_optimizer(
    optimizer: OptimizerCallable, module: LightningModule, encoder: nn.Module, encoder_rate: float | None
) -> Optimizer:
    """The optimizer of a module's parameters.

    Args:
        optimizer: makes an optimizer of parameter groups, with the learning rate of all but the encoder's.
        module: the module.
        encoder: the part of it with a learning rate of its own.
        encoder_rate: None = the encoder is left out. Otherwise it is in the optimizer from the start, which skips
            frozen parameters, because they have no gradient.
    """
    encoder_parameters = list(encoder.parameters())
    excluded = set(encoder_parameters)
    groups: list[dict[str, Any]] = [{"params": [p for p in module.parameters() if p not in excluded]}]
    if encoder_rate is not None:
        groups.append({"params": encoder_parameters, "lr": encoder_rate})
    return optimizer(groups)


def make_schedule(
    optimizer: Optimizer, scheduler: LRSchedulerCallable | None, monitor: str, mode: Mode
) -> LRScheduler | None:
    """The schedule of an optimizer, if there is one; if it waits for a plateau, it is told the metric's direction.

    Raises:
        UserError: the schedule has been told the other one; "min", its default, counts as nothing said.
    """
    schedule = None if scheduler is None else scheduler(optimizer)
    if isinstance(schedule, ReduceLROnPlateau):
        if schedule.mode == "max" and mode == "min":
            mode_of(monitor, schedule.mode, "--model.scheduler.init_args")
        schedule._init_is_better(mode, schedule.threshold, schedule.threshold_mode)
    return schedule


def step_plateau_schedules(trainer: Trainer) -> None:
    """Step schedules that wait for a plateau, at the end of an epoch.

    Lightning would step them after the epoch's checkpoint is written, and a resumed run would miss the step.
    """
    for config in trainer.lr_scheduler_configs:
        score = trainer.callback_metrics.get(str(config.monitor))
        if isinstance(config.scheduler, ReduceLROnPlateau) and score is not None:
            config.scheduler.step(score.item())
