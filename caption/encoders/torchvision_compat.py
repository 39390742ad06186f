"""Imports torchvision beside any build of torch. Import this before torchvision or pytorch_lightning.

The CUDA build of torchvision that package indexes serve cannot load its extension beside a CPU-only torch, and then
fails on two operators (`nms`, `qnms`) whose schemas it expects to find. Declaring them is enough for everything
here: no captioner suppresses boxes, and Pillow decodes the images. pytorch_lightning imports torchvision through
torchmetrics and would fail with it.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

_declared: list[Any] = []  # a library's declarations last only as long as the object


def import_torchvision() -> Any:
    """The torchvision module, with the missing operators declared where its extension could not be loaded."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]  # half imported
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
    return importlib.import_module("torchvision")


import_torchvision()
