"""What all steps read, of ever fewer images: its gradient in one tensor that each step adds to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from caption.kernels.first_order import require_first_order
from caption.kernels.gradient_sum import GradientSum, gradient_sum, mark
from caption.tensor_tree import TensorTree, map_tensors


class SharedMemory:
    """The memory of the images that still run at step t of an unroll.

    Autograd alone makes of a slice's gradient a tensor as large as the whole, filled up with zeros, and adds it to
    those of the other steps. Here each step adds its gradient to its part of one `GradientSum`.

        shared = SharedMemory(memory)
        for t in range(steps):
            memory_of_step = shared.first(rows[t])

    The gradients are exact, but cannot be differentiated again.

    Args:
        record: tensors (B, ...).
    """

    def __init__(self, record: TensorTree) -> None:
        self.record = map_tensors(_join, record)

    def first(self, images: int) -> TensorTree:
        """The record with the first `images` images."""
        return map_tensors(lambda tensor: _first(tensor, images), self.record)


def _join(tensor: Tensor) -> Tensor:
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    total = GradientSum(tensor)
    return mark(Join.apply(tensor, total), total)


def _first(tensor: Tensor, images: int) -> Tensor:
    total = gradient_sum(tensor)
    return tensor[:images] if total is None else mark(First.apply(tensor, total, images), total)


class Join(torch.autograd.Function):
    """x -> x, whose gradient is the sum's. It runs when all steps have gone backward, since each of them reads x."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, total: GradientSum) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.total = total
        return tensor.detach()  # not a view, whose every origin a compiler would take for another case

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None]:
        total = ctx.total.take()
        if total is not None and grad is not None:
            total += grad
        return grad if total is None else total, None


class First(torch.autograd.Function):
    """x -> x[:images], whose gradient goes to the sum, unless who read it has put it there."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, total: GradientSum, images: int) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.total = total
        return tensor[:images]

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[None, None, None]:
        require_first_order("an unroll")
        if grad is not None:
            part = ctx.total.first(len(grad))
            part += grad
        return None, None, None
