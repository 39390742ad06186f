"""A GPU that computes nothing, and finds tensors of two devices in one operation. It needs no hardware, and no build of
torch for it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration

NAME = "gpu"
EVERY_NUMBER = 2
SETUP = "_setup_privateuseone_for_python_backend"
needs_python_backends = pytest.mark.skipif(
    not hasattr(backend_registration, SETUP), reason="this torch has no devices written in Python"
)


class Device:
    """What torch asks of the module `torch.gpu`."""

    is_initialized = is_available = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    manual_seed_all = staticmethod(lambda seed: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16])


class Affirmative(FakeTensorMode):
    """Tensors have a shape and a device, and no numbers. Code that asks for a number is told `EVERY_NUMBER`, or True.

    So all captions have two words, and no search ends before its largest number of steps.
    """

    avoid_device_init = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].constant is None:
            return True if args[0].dtype == torch.bool else EVERY_NUMBER
        if func is torch.ops.aten.nonzero.default:
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.long)
        return super().__torch_dispatch__(func, types, args, kwargs or {})


@contextmanager
def fake_gpu() -> Iterator[torch.device]:
    """Within, models and tensors move to the device with `to`. Only in a process of `fake_gpu_process`."""
    with Affirmative(allow_non_fake_inputs=True):
        yield torch.device(NAME, 0)


def fake_gpu_process() -> ProcessPoolExecutor:
    """A process with the device, which cannot be removed again."""
    return ProcessPoolExecutor(1, get_context("spawn"), _register)


def failure_of(work: Callable[..., None], *arguments: object) -> str:
    """The traceback of a call, "" if it succeeds. Errors of fake tensors hold what no process can send."""
    try:
        work(*arguments)
    except Exception:
        return traceback.format_exc()
    return ""


def _register() -> None:
    torch.set_num_threads(1)
    setup: Callable[..., None] = getattr(backend_registration, SETUP)
    setup(NAME, Device())
