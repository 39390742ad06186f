"""Options of Lightning's trainer that it does not check, or cannot follow here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed

from caption.core.errors import UserError, printable

LEAST = {
    "accumulate_grad_batches": 1,
    "gradient_clip_val": 0,
    "check_val_every_n_epoch": 1,
    "log_every_n_steps": 0,
}
"""The smallest value of each option."""


def check_trainer(options: Mapping[str, Any]) -> None:
    """Check the trainer's options before data is read.

    Args:
        options: by the names of `Trainer`'s arguments.

    Raises:
        UserError: a number is too small; devices that are not numbers; more processes than processor cores;
            `overfit_batches`.
    """
    for name, least in LEAST.items():
        value = options.get(name)
        if isinstance(value, (int, float)) and not value >= least:
            raise UserError(
                f"the configuration cannot be used: trainer.{name} is {value}: give {least} or more"
            )
    for name in ("val_check_interval", "limit_train_batches"):
        value = options.get(name)
        if isinstance(value, (int, float)) and not value > 0:
            raise UserError(
                f"the configuration cannot be used: trainer.{name} is {value}: give a number of batches, or a fraction "
                "of an epoch such as 0.5"
            )
    if options.get("overfit_batches"):
        raise UserError(
            "trainer.overfit_batches is not supported, because training has an order of its own, which can be resumed: "
            "to overfit a few images, train on a captions file that has only these"
        )
    _check_processes(options)


def _check_processes(options: Mapping[str, Any]) -> None:
    """Lightning starts one process for each device, and a processor has as many as one asks for."""
    accelerator, devices = options.get("accelerator"), options.get("devices")
    if devices in ("auto", None):
        return
    given = str(devices)
    places = devices if isinstance(devices, list) else given.rstrip(",").split(",")
    if not all(str(place).strip().removeprefix("-").isdecimal() for place in places):
        raise UserError(
            f"the configuration cannot be used: trainer.devices is {printable(given)}: give a number of processes, "
            "numbers of GPUs such as [0,1], or auto"
        )
    accelerators = torch.cuda.is_available() or torch.backends.mps.is_available()
    if accelerator not in ("cpu", *(["auto", None] if not accelerators else [])):
        return
    if distributed.is_available() and distributed.is_torchelastic_launched():  # it has started them
        return
    cores = os.cpu_count() or 1
    if not given.removeprefix("-").isdecimal() or not 1 <= int(given) <= cores:
        raise UserError(
            f"trainer.devices is {given}, the number of processes on a CPU: choose 1 to {cores}, its number of cores"
        )
