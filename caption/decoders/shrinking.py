"""What all steps read, of ever fewer images: its gradient in one tensor that each step adds to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from caption.records import Record, map_record


class Shrinking:
    """The memory of the images that still run at step t of an unroll.

    Autograd alone makes of a slice's gradient a tensor as large as the whole, filled up with zeros, and adds it to
    those of the other steps. Here each step adds its gradient to its part of one tensor.

        shrinking = Shrinking(memory)
        for t in range(steps):
            memory_of_step = shrinking.first(rows[t])

    The gradients are exact, but cannot be differentiated again. Those in half precision are added up in single.

    Args:
        record: tensors (B, ...).
    """

    def __init__(self, record: Record) -> None:
        self.sums: dict[int, Sum] = {}
        self.record = map_record(self._join, record)

    def first(self, images: int) -> Record:
        """The record with the first `images` images."""
        return map_record(lambda tensor: self._first(tensor, images), self.record)

    def _join(self, tensor: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and tensor.requires_grad):
            return tensor
        total = Sum(tensor)
        joined = Join.apply(tensor, total)
        self.sums[id(joined)] = total
        return joined

    def _first(self, tensor: Tensor, images: int) -> Tensor:
        total = self.sums.get(id(tensor))
        return tensor[:images] if total is None else First.apply(tensor, total, images)


class Sum:
    """The gradient of a tensor, as far as it is known."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.dtype = tensor.shape, torch.promote_types(tensor.dtype, torch.float32)
        self.total: Tensor | None = None

    def add(self, grad: Tensor) -> None:
        """The gradient of the first images."""
        images = len(grad)
        if self.total is None:
            self.total = torch.empty(self.shape, dtype=self.dtype, device=grad.device)
            self.total[:images] = grad
            self.total[images:] = 0
        else:
            self.total[:images] += grad

    def take(self) -> Tensor | None:
        """What was added up, which begins anew."""
        total, self.total = self.total, None
        return total


class Join(torch.autograd.Function):
    """x -> x, whose gradient is the sum's. It runs when all steps have gone backward, since each of them reads x."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, total: Sum) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.total = total
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None]:
        total = ctx.total.take()
        if total is not None and grad is not None:
            total += grad
        return grad if total is None else total, None


class First(torch.autograd.Function):
    """x -> x[:images], which adds to the sum."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, total: Sum, images: int) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.total = total
        return tensor[:images]

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[None, None, None]:
        if (
            torch.is_grad_enabled()
        ):  # the sum is no part of the graph: a second derivative would lack its share
            raise RuntimeError(
                "gradients of an unroll cannot be differentiated again: leave out create_graph=True"
            )
        if grad is not None:
            ctx.total.add(grad)
        return None, None, None
