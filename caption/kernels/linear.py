"""Linear maps y = W x + b by the library that is faster with the processor's instructions.

PyTorch's builds for x86 multiply matrices with Intel's MKL, which uses its slowest kernels on other makers' processors.
oneDNN, in the same builds, depends only on the instruction set. Products are in single precision, summed in another
order. One thread of an AMD EPYC, in GFLOP/s, MKL and oneDNN:

    AVX-512: 32 and 320 rows with the LSTM's weights 40 to 90 and 150 to 190; with 9,500 words 50 and 115
    AVX2: 50 x 128 x 128 62 and 25, 320 x 512 x 2,048 78 and 75; with 2,540 words 58 and 71, with 9,500 51 and 76

So oneDNN computes all but small products with AVX-512 (on Intel's processors the two are equally fast), and products
with many outputs with AVX2. The choice is fixed, not measured at run time, so that a resumed run gives the same bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.kernels.convolution import fused_available

SMALL = 1 << 20
"""Number of multiplications in a product below which MKL is as fast."""
OUTPUTS = {"AVX512": 0, "AVX2": 2400}
"""By instruction set, the number of outputs from which oneDNN is faster."""


class OneDNNLinear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`.

    Args:
        inputs: (..., K).
        weight: (N, K).
        bias: (N,).

    Returns:
        (..., N).
    """
    if not _takes(inputs, weight):
        return functional.linear(inputs, weight, bias)
    if torch.is_grad_enabled():
        return Product.apply(inputs, weight, bias)
    return _product(inputs, weight, bias)


class Product(torch.autograd.Function):
    """See `linear`. Its gradients can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _product(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        needs_inputs, needs_weight, needs_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        with torch.autocast("cpu", enabled=False):
            return (
                linear(grad, weight.t()) if needs_inputs else None,
                linear(rows.t(), inputs.flatten(0, -2).t()) if needs_weight else None,
                rows.sum(0) if needs_bias else None,
            )


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # A private operator, which torch.compile uses.
    operator = torch.ops.mkldnn._linear_pointwise.default
    product: Tensor = operator(_dense(inputs.flatten(0, -2)), _dense(weight), bias, "none", [], "")
    return product.unflatten(0, inputs.shape[:-1])


def _dense(matrix: Tensor) -> Tensor:
    """The matrix, copied if it is a slice of columns: the operator is slow if there are gaps between rows."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()


def _takes(inputs: Tensor, weight: Tensor) -> bool:
    if torch.is_autocast_enabled("cpu") or len(weight) < least_outputs():
        return False
    single = inputs.dtype is weight.dtype is torch.float32 and inputs.is_cpu and weight.is_cpu
    return single and inputs.numel() * len(weight) >= SMALL


@cache
def least_outputs() -> float:
    """The number of outputs from which oneDNN computes a product here; infinite if PyTorch lacks MKL or oneDNN."""
    if not (torch.backends.mkl.is_available() and fused_available()):
        return float("inf")
    return OUTPUTS.get(torch.backends.cpu.get_cpu_capability(), float("inf"))
