"""The gradient of a tensor that many steps read, added up in one place.

Autograd makes a tensor of its own for every step's gradient, and adds that to those before. Where the tensor is large
and the step does little with it, as attention does with projected regions, this takes as long as the step. A
`GradientSum` is the place where they are added up; a step that knows how adds its own there, and makes no tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caption.kernels.first_order import require_first_order

MARK = "caption_gradient_sum"


class GradientSum:
    """Of a tensor (B, ...) whose first images are read by each step. Half precision is added up in single.

    It belongs to a pass backward, and begins anew with the next: what a pass left behind that never took it, since only
    other gradients were asked for, does not count.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.device = tensor.shape, tensor.device
        self.dtype = torch.promote_types(tensor.dtype, torch.float32)
        self.total: Tensor | None = None
        self.backward: int | None = None

    def first(self, images: int) -> Tensor:
        """The sum's first `images` rows, to add to; for the backward pass of a step.

        Raises:
            RuntimeError: the gradients are to be differentiated again, and the sum is no part of autograd's graph.
        """
        require_first_order(
            "an unroll"
        )  # the sum is no part of the graph: a second derivative would lack its share
        backward = torch._C._current_graph_task_id()
        if self.total is None or backward != self.backward:
            self.total, self.backward = (
                torch.zeros(self.shape, dtype=self.dtype, device=self.device),
                backward,
            )
        return self.total[:images]

    def take(self) -> Tensor | None:
        """The sum, if there was anything to add in this pass."""
        total, self.total = self.total, None
        return total if self.backward == torch._C._current_graph_task_id() else None


def mark(tensor: Tensor, total: GradientSum) -> Tensor:
    """The same tensor, whose readers may add their gradients to the sum, and then return none to autograd."""
    setattr(tensor, MARK, total)
    return tensor


def gradient_sum(tensor: Tensor) -> GradientSum | None:
    """Where the gradient of this very tensor may be added up; None for most tensors, which leave that to autograd."""
    return getattr(tensor, MARK, None)
