"""Training in several processes (DDP): sums and means over them, and the trainer's settings under torchrun.

With one process, these functions change nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, distributed

from caption.core.errors import UserError


def process_count() -> int:
    """The number of processes that train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def total(values: Tensor) -> Tensor:
    """The sum of `values` over all processes, without gradient. Every process must call it."""
    values = values.detach()
    if process_count() > 1:
        values = values.clone()
        distributed.all_reduce(values)
    return values


def mean(values: Tensor) -> Tensor:
    """The mean of `values` over all processes, without gradient. Every process must call it.

    A process's sum divided by the mean of the processes' counts is its share of the mean over the whole batch.
    """
    return total(values) / process_count()


def mean_of_each(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The mean of each scalar over all processes, in one message. Every process must call it, with the same names."""
    if process_count() == 1:
        return values
    return dict(zip(values, mean(torch.stack([value.float() for value in values.values()])), strict=True))


def leave_process_group() -> None:
    """Destroy the process group. Without this, a process may be aborted while it exits."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def torchrun_settings(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's devices, nodes and strategy in a process that torchrun has started; {} otherwise.

    Without them, each process would train its own model and write it to the same files.

    Args:
        trainer: the user's settings, by the names of `Trainer`'s arguments.

    Raises:
        UserError: the number of devices is not the number of processes that torchrun has started.
    """
    if not (distributed.is_available() and distributed.is_torchelastic_launched()):
        return {}
    processes, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    devices = trainer.get("devices")
    number = len(devices) if isinstance(devices, list) else devices
    if str(number) not in ("None", "auto", "-1", str(local)):
        raise UserError(
            f"trainer.devices is {devices}, but torchrun has started {local} processes on this machine: leave "
            "trainer.devices out, or give torchrun the same --nproc-per-node"
        )
    settings = {"devices": devices if isinstance(devices, list) else local, "num_nodes": processes // local}
    return settings | ({"strategy": "ddp"} if trainer.get("strategy") in (None, "auto") else {})
