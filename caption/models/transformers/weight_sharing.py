"""Copies of a model that share its weights, so that hooks and settings of the copy leave the model as it was."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def frozen_copy(model: Module) -> Module:
    """A copy of a model, in evaluation mode and without gradients, that shares the memory of its weights and buffers.

    Training the model in place also changes the copy. Moving either of them to another device or type ends the sharing.
    Quantised weights, which are objects of other classes, are copied.
    """
    shared: dict[int, object] = {
        id(weight): nn.Parameter(weight.detach(), requires_grad=False)
        for weight in model.parameters()
        if type(weight) is nn.Parameter
    }
    shared |= {id(buffer): buffer.detach() for buffer in model.buffers() if type(buffer) is Tensor}
    return copy.deepcopy(model, shared).eval()
