"""Makes torchvision importable with any build of torch, and without torch's compiler.

The CUDA build of torchvision, the one in package indexes, cannot load its extension with a CPU-only torch, and then
fails because the schemas of two operators (`nms`, `qnms`) are missing. Declaring them is enough: this package does not
use non-maximum suppression, and Pillow decodes the images. timm imports torchvision, and so does pytorch_lightning,
through torchmetrics; without this, they would also fail.

torchvision also imports torch's compiler for one function of its alignment of boxes, which takes longer than importing
torch. Here the compiler is imported only when this function is called.

`import caption` installs this as an import hook, so that nothing has to be imported before torchvision.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"
_declared: list[Any] = []  # the declarations last only as long as this object


class TorchvisionFinder(MetaPathFinder):
    """Finds torchvision in Python's search path, and executes it with `execute`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == "torchvision" else None
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(execute, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Install the import hook, once per process."""
    if not any(isinstance(finder, TorchvisionFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TorchvisionFinder())


def execute(original: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute torchvision with the `original` function, and declare the missing operators if its extension cannot be
    loaded."""
    import torch  # first, so that it does not import the substitute of its compiler

    try:
        _execute(original, module)
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        _forget_submodules()
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
        _execute(original, module)


def _execute(original: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        with _compiler_later():
            original(module)
    except ImportError:  # this release imports other functions of the compiler
        _forget_submodules()
        original(module)


def _forget_submodules() -> None:
    for name in [name for name in sys.modules if name.startswith("torchvision.")]:
        del sys.modules[name]  # partly imported


@contextmanager
def _compiler_later() -> Iterator[None]:
    """Context in which torch._dynamo is a module with only the function that torchvision imports."""
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
