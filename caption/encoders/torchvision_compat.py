"""Makes torchvision importable with any build of torch. Import this before torchvision or pytorch_lightning.

The CUDA build of torchvision, which package indexes serve, cannot load its extension with a CPU-only torch, and then
fails because the schemas of two operators (`nms`, `qnms`) are missing. Declaring them is enough: this package does not
suppress boxes, and Pillow decodes the images. pytorch_lightning imports torchvision through torchmetrics and would
fail, too.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

_declared: list[Any] = []  # the declarations last only as long as this object


def import_torchvision() -> Any:
    """The torchvision module, with the missing operators declared if its extension cannot be loaded."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]  # partly imported
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
    return importlib.import_module("torchvision")


import_torchvision()
