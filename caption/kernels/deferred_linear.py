"""A linear map used at every step, whose weight gradient is one product over all steps.

Gain: it grows with the weight. With the authors' LSTM of 1800 units (D 512, 32 captions) a training step without it
takes 1.40 times as long and 1.2 times the memory; with 512 units, 1.0 to 1.05 times as long (one CPU thread,
`docs/results/log.md`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from caption.kernels.first_order import require_first_order
from caption.kernels.linear import linear


class DeferredLinear:
    """y[t] = o[t] + W x[t] at each step of an unroll, with dW = Σ_t dy[t] x[t]ᵀ computed once.

    Autograd alone computes a gradient as large as W at every step and adds them all up, which for the LSTM's weights
    takes longer than the steps themselves. Here the steps use a detached W. dy[t] is also the gradient of the offset
    o[t], and all offsets come from one tensor, so dW is computed once from that tensor's gradient.

        deferred = DeferredLinear(weight)
        offsets = deferred.join(offsets).split(sizes)
        for t in range(steps):
            y = offsets[t] + linear(x, deferred.weight)
            deferred.record(x)

    The gradients are exact, but cannot be differentiated again.

    Args:
        weight: W, (outputs, inputs).
    """

    def __init__(self, weight: Tensor) -> None:
        self.parameter = weight
        device = weight.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        self.weight = weight.detach().to(low)  # converted once; autocast would do it at each step
        self.inputs: list[Tensor] = []

    def join(self, offsets: Tensor) -> Tensor:
        """Offsets o (N, outputs) of all steps -> the same, but their gradient also gives that of W. Call it once,
        before the steps."""
        return Join.apply(offsets, self.parameter, self.inputs)

    def record(self, inputs: Tensor) -> None:
        """Record x[t] (..., inputs). Calls must be in the order of the offsets, with as many rows in total."""
        self.inputs.append(inputs.detach().flatten(0, -2).to(self.weight.dtype))


class Join(torch.autograd.Function):
    """See `DeferredLinear.join`."""

    @staticmethod
    def forward(ctx: Any, offsets: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs = inputs  # filled by the steps
        ctx.dtype = weight.dtype
        return offsets.view_as(offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        require_first_order("an unroll")
        if not ctx.needs_input_grad[1] or not ctx.inputs:
            return grad, None, None
        inputs = torch.cat(ctx.inputs)
        with torch.autocast(grad.device.type, enabled=False):
            return grad, linear(grad.T.to(inputs.dtype), inputs.T).to(ctx.dtype), None
