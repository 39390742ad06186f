"""Makes torchvision importable with any build of torch. Import this before torchvision or pytorch_lightning.

The CUDA build of torchvision, which package indexes serve, cannot load its extension with a CPU-only torch, and then
fails because the schemas of two operators (`nms`, `qnms`) are missing. Declaring them is enough: this package does not
suppress boxes, and Pillow decodes the images. pytorch_lightning imports torchvision through torchmetrics and would
fail, too.

torchvision also imports torch's compiler for one function of its alignment of boxes, which takes longer than all of
torch. It gets that function only when it calls it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

COMPILER = "torch._dynamo"
_declared: list[Any] = []  # the declarations last only as long as this object


def import_torchvision() -> Any:
    """The torchvision module, with the missing operators declared if its extension cannot be loaded."""
    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    try:
        return _import()
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    _forget()
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
    return _import()


def _import() -> Any:
    try:
        with _compiler_later():
            return importlib.import_module("torchvision")
    except ImportError:  # it takes more of the compiler than is known here
        _forget()
        return importlib.import_module("torchvision")


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]  # partly imported


@contextmanager
def _compiler_later() -> Iterator[None]:
    """In place of torch._dynamo, a module with the one function that torchvision imports."""
    if COMPILER in sys.modules:
        yield
        return
    package, utils = ModuleType(COMPILER), ModuleType(f"{COMPILER}.utils")
    package.__path__ = []
    utils.is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    added = {COMPILER: package, f"{COMPILER}.utils": utils}
    sys.modules |= added
    try:
        yield
    finally:
        for name, module in added.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _is_compile_supported(device_type: str) -> Any:
    return importlib.import_module(f"{COMPILER}.utils").is_compile_supported(device_type)


import_torchvision()
