"""Trainer settings under torchrun, which has already started the processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch import distributed

from caption.core.errors import UserError


def trainer_settings(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's devices, nodes and strategy in a process that torchrun has started; nothing elsewhere.

    Without them, each process would train a model of its own, and write it to the same files.

    Raises:
        UserError: it has another number of devices than torchrun has started processes.
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
