"""The memory that every step reads, with one tensor that sums its gradient over the steps.

Later steps read the memory of fewer images. Autograd makes a gradient tensor for every step. For a slice it is as large
as the whole and mostly zeros, and it is added to those of the other steps. If the memory is large and a step computes
little with it, as attention does with projected regions, this takes about as long as the step. Here each step adds its
gradient to its slice of one tensor.

Gain: without it, a training step at D 2048, 14x14 regions, 64 images takes 1.12 to 1.15 times as long and 1.18 times
the memory; at D 512, 1.0 times (one CPU thread, `docs/log.md`). It needs `torch._C._current_graph_task_id`, the only
way to distinguish backward passes, and an attribute on the tensors, through which `additive_energies` finds the sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from caption.kernels.first_order import require_first_order
from caption.tensor_tree import TensorTree, map_tensors

MARK = "caption_gradient_sum"


class SharedMemory:
    """The memory of the images with captions still running at step t of an unroll.

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
    """The sum of the gradients of a tensor (B, ...) of which each step reads the first images. Half precision is summed
    in single precision.

    It belongs to one backward pass; the next one starts again from zero. A sum that its backward pass did not consume,
    because only other gradients were requested, is discarded.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.device = tensor.shape, tensor.device
        self.dtype = torch.promote_types(tensor.dtype, torch.float32)
        self.total: Tensor | None = None
        self.backward: int | None = None

    def first(self, images: int) -> Tensor:
        """The sum's first `images` rows, to which the backward pass of a step adds.

        Raises:
            RuntimeError: the gradients are to be differentiated again. The sum is not in autograd's graph, so a second
                derivative would lack its part.
        """
        require_first_order("an unroll")
        backward = torch._C._current_graph_task_id()
        if self.total is None or backward != self.backward:
            self.total = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
            self.backward = backward
        return self.total[:images]

    def take(self) -> Tensor | None:
        """The sum of this backward pass, None if nothing was added."""
        total, self.total = self.total, None
        return total if self.backward == torch._C._current_graph_task_id() else None


def gradient_sum(tensor: Tensor) -> GradientSum | None:
    """The gradient sum attached to this tensor; None for ordinary tensors.

    A function that adds its gradient to the sum must return None to autograd.
    """
    return getattr(tensor, MARK, None)


def _attach(tensor: Tensor, total: GradientSum) -> Tensor:
    setattr(tensor, MARK, total)
    return tensor


def _join(tensor: Tensor) -> Tensor:
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    total = GradientSum(tensor)
    return _attach(Join.apply(tensor, total), total)


def _first(tensor: Tensor, images: int) -> Tensor:
    total = gradient_sum(tensor)
    return tensor[:images] if total is None else _attach(First.apply(tensor, total, images), total)


class Join(torch.autograd.Function):
    """x -> x, whose gradient is the sum. Its backward runs after those of all steps, because each of them reads x."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, total: GradientSum) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.total = total
        # Not a view: the compiler would specialise on each base tensor.
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None]:
        total = ctx.total.take()
        if total is not None and grad is not None:
            total += grad
        return grad if total is None else total, None


class First(torch.autograd.Function):
    """x -> x[:images], whose gradient is added to the sum, unless its reader has already added it."""

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
