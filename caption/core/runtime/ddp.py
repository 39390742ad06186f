"""DDP, training in several processes: sums and means over them. With one process they change nothing."""

from __future__ import annotations

import torch
from torch import Tensor, distributed


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

    As the divisor of a process's sum, the mean of the processes' counts makes a share of the mean over the whole batch.
    """
    return total(values) / process_count()


def mean_of_each(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The mean over all processes of each scalar, in one message. Every process must call it, with the same names."""
    if process_count() == 1:
        return values
    return dict(zip(values, mean(torch.stack([value.float() for value in values.values()])), strict=True))


def leave_process_group() -> None:
    """Ends the connection to the other processes. Without it, a process may be aborted while it exits."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
