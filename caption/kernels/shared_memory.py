"""A memory that every step reads, of ever fewer images: its gradient is added up in one tensor.

Autograd makes a tensor for every step's gradient. For a slice it is as large as the whole and mostly zeros, and it is
added to those of the other steps. Where the memory is large and a step does little with it, as attention does with
projected regions, this takes about as long as the step. Here each step adds its gradient to its part of one tensor.

Gain: without it, a training step at D 2048, 14x14 regions, 64 images takes 1.12 to 1.15 times as long and 1.18 times
the memory; at D 512, 1.0 times (one CPU thread, `docs/log.md`). It needs `torch._C._current_graph_task_id`, the only
way to tell one backward pass from the next, and an attribute on the tensors, the only way in which a reader further
down (`additive_energies`) finds the sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from caption.kernels.first_order import require_first_order
from caption.tensor_tree import TensorTree, map_tensors

MARK = "caption_gradient_sum"


class SharedMemory:
    """The memory of the images that still run at step t of an unroll.

        shared = SharedMemory(memory)
        for t in range(steps):
            memory_of_step = shared.first(rows[t])

    It equals `memory[:rows[t]]`, tensor by tensor. The gradients are exact, but cannot be differentiated again.

    Args:
        memory: tensors (B, ...).
    """

    def __init__(self, memory: TensorTree) -> None:
        self.memory = map_tensors(_join, memory)

    def first(self, images: int) -> TensorTree:
        """The memory of the first `images` images."""
        return map_tensors(lambda tensor: _first(tensor, images), self.memory)


class GradientSum:
    """The gradient of a tensor (B, ...) whose first images are read by each step. Half precision is added in single.

    It belongs to one backward pass and starts anew with the next. A sum that its backward pass did not consume, because
    only other gradients were asked for, is discarded.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.device = tensor.shape, tensor.device
        self.dtype = torch.promote_types(tensor.dtype, torch.float32)
        self.total: Tensor | None = None
        self.backward: int | None = None

    def first(self, images: int) -> Tensor:
        """The sum's first `images` rows, to add to; for the backward pass of a step.

        Raises:
            RuntimeError: the gradients are to be differentiated again. The sum is outside autograd's graph, and a
                second derivative would lack its share.
        """
        require_first_order("an unroll")
        backward = torch._C._current_graph_task_id()
        if self.total is None or backward != self.backward:
            self.total = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
            self.backward = backward
        return self.total[:images]

    def take(self) -> Tensor | None:
        """The sum, if there was anything to add in this pass."""
        total, self.total = self.total, None
        return total if self.backward == torch._C._current_graph_task_id() else None


def gradient_sum(tensor: Tensor) -> GradientSum | None:
    """Where the gradient of this very tensor may be added up; None for most tensors, which leave it to autograd.

    A function that adds its gradient there returns none to autograd.
    """
    return getattr(tensor, MARK, None)


def _marked(tensor: Tensor, total: GradientSum) -> Tensor:
    setattr(tensor, MARK, total)
    return tensor


def _join(tensor: Tensor) -> Tensor:
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    total = GradientSum(tensor)
    return _marked(Join.apply(tensor, total), total)


def _first(tensor: Tensor, images: int) -> Tensor:
    total = gradient_sum(tensor)
    return tensor[:images] if total is None else _marked(First.apply(tensor, total, images), total)


class Join(torch.autograd.Function):
    """x -> x, whose gradient is the sum's. Its backward runs after those of all steps, since each of them reads x."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, total: GradientSum) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.total = total
        return (
            tensor.detach()
        )  # not a view: a compiler would treat views of different tensors as different cases

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None]:
        total = ctx.total.take()
        if total is not None and grad is not None:
            total += grad
        return grad if total is None else total, None


class First(torch.autograd.Function):
    """x -> x[:images], whose gradient goes to the sum, unless its reader has already put it there."""

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
