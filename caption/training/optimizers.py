"""Optimizer and learning rate schedule of a training, in the form that Lightning takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from pytorch_lightning import Trainer
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from pytorch_lightning.utilities import rank_zero_warn
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, CyclicLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from caption.core.errors import UserError
from caption.training.watched import Mode, mode_of

Interval = Literal["epoch", "step"]
STEPPED_EACH_BATCH = (OneCycleLR, CyclicLR)
"""Schedules that PyTorch's documentation steps after each batch."""


def make_optimizer(
    optimizer: OptimizerCallable, module: nn.Module, encoder: nn.Module, encoder_rate: float | None
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
        UserError: the schedule has been told the other one; "min", its default, counts as nothing said. It has one
            highest rate for parts that have different ones.
    """
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    schedule = None if scheduler is None else scheduler(optimizer)
    _check_encoder_keeps_its_rate(schedule, rates)
    if isinstance(schedule, ReduceLROnPlateau):
        if schedule.mode == "max" and mode == "min":
            mode_of(monitor, schedule.mode, "--model.scheduler.init_args")
        schedule._init_is_better(mode, schedule.threshold, schedule.threshold_mode)
    return schedule


def _check_encoder_keeps_its_rate(schedule: LRScheduler | None, rates: Sequence[float]) -> None:
    """Raise a UserError if a schedule that sets rates itself gives one to the encoder and to the others, whose `rates`
    differed."""
    if isinstance(schedule, OneCycleLR):
        name, given = "max_lr", [float(group["max_lr"]) for group in schedule.optimizer.param_groups]
    elif isinstance(schedule, CyclicLR):
        name, given = "base_lr", [float(rate) for rate in schedule.base_lrs]
    else:
        return
    if len(set(rates)) > 1 and len(set(given)) == 1:
        raise UserError(
            f"{type(schedule).__name__} gives the encoder, whose rate is {rates[1]:g}, the rate of the others: "
            f"give {name} two numbers, the second for the encoder, such as [{given[0]:g}, "
            f"{given[0] * rates[1] / rates[0]:g}]"
        )


def interval_of(schedule: LRScheduler | None, interval: Interval | None) -> Interval:
    """When a schedule is stepped: after each epoch, or after each step of the optimizer.

    Args:
        schedule: None = the rates are constant.
        interval: what the user says; None = what PyTorch's documentation says of the schedule's class.

    Raises:
        UserError: a schedule that waits for a plateau cannot be stepped before a validation.
    """
    if interval == "step" and isinstance(schedule, ReduceLROnPlateau):
        raise UserError(
            "model.scheduler_interval is step, but ReduceLROnPlateau waits for the validation of an epoch: leave it out"
        )
    return interval or ("step" if isinstance(schedule, STEPPED_EACH_BATCH) else "epoch")


def check_length(schedule: LRScheduler | None, interval: Interval, steps: float, epochs: int | None) -> None:
    """Check that a schedule that ends is as long as the training. `OneCycleLR` refuses further steps; the rate of
    `CosineAnnealingLR` rises again, of which a warning tells.

    Args:
        schedule: of the training.
        interval: see `interval_of`.
        steps: of the optimizer in the whole training.
        epochs: of the training; None or negative = not known.

    Raises:
        UserError: a `OneCycleLR` is shorter.
    """
    needed = steps if interval == "step" else max(epochs or 0, 0)
    if isinstance(schedule, OneCycleLR) and schedule.total_steps < needed:
        raise UserError(
            f"the configuration cannot be used: OneCycleLR ends after {schedule.total_steps:,} steps, and training has "
            f"{needed:,} {interval}s: --model.scheduler.init_args.total_steps {needed}"
        )
    if isinstance(schedule, CosineAnnealingLR) and schedule.T_max < needed < math.inf:
        rank_zero_warn(
            f"the learning rate is at its lowest after {schedule.T_max:,} of {needed:,} {interval}s, and then rises "
            f"again: --model.scheduler.init_args.T_max {needed} ends there"
        )


def step_plateau_schedules(trainer: Trainer) -> None:
    """Step schedules that wait for a plateau, at the end of an epoch.

    Lightning would step them after the epoch's checkpoint is written, and a resumed run would miss the step.
    """
    every = trainer.check_val_every_n_epoch
    if every and (trainer.current_epoch + 1) % every:
        return  # the last score has been seen
    for config in trainer.lr_scheduler_configs:
        score = trainer.callback_metrics.get(str(config.monitor))
        if isinstance(config.scheduler, ReduceLROnPlateau) and score is not None:
            config.scheduler.step(score.item())
