"""Linear maps y = W x + b on processors to which MKL gives its slowest kernels.

PyTorch's builds for x86 multiply matrices by Intel's MKL, which checks the processor's maker. oneDNN, which is in the
same builds, checks its instructions. The products are those of single precision, summed in another order; on a
processor of Intel's the two are equally fast, and PyTorch's own function is used.

Gain, one thread of an AMD EPYC with AVX-512: products of 32 and 320 rows with the LSTM's weights run at 150 to 190
GFLOP/s instead of 40 to 90, those with the output's 9,500 words at 115 instead of 50, and gradients likewise. Small
products are left to MKL, since a call of the operator costs 10 µs more.
"""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.kernels.convolution import fused_available

SMALL = 1 << 20
"""Multiplications of a product below which MKL is as fast."""
OTHER_MAKERS = re.compile("AuthenticAMD|HygonGenuine|CentaurHauls|Shanghai")
"""As the processors name them."""


class Linear(nn.Linear):
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
        return OneDNNLinear.apply(inputs, weight, bias)
    return _product(inputs, weight, bias)


class OneDNNLinear(torch.autograd.Function):
    """See `linear`. Its gradients can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _product(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        with torch.autocast("cpu", enabled=False):
            return (
                linear(grad, weight.t()) if of_inputs else None,
                linear(rows.t(), inputs.flatten(0, -2).t()) if of_weight else None,
                rows.sum(0) if of_bias else None,
            )


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # torch.compile uses the operator; it is private.
    operator = torch.ops.mkldnn._linear_pointwise.default
    product: Tensor = operator(_dense(inputs.flatten(0, -2)), _dense(weight), bias, "none", [], "")
    return product.unflatten(0, inputs.shape[:-1])


def _dense(matrix: Tensor) -> Tensor:
    """The matrix, copied if it is a slice of columns: with gaps between the rows the operator takes milliseconds."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()


def _takes(inputs: Tensor, weight: Tensor) -> bool:
    graph = torch.compiler.is_compiling() or torch.compiler.is_exporting()
    if graph or torch.is_autocast_enabled("cpu") or not _mkl_is_slow():
        return False
    single = inputs.dtype is weight.dtype is torch.float32 and inputs.is_cpu and weight.is_cpu
    return single and inputs.numel() * len(weight) >= SMALL


@cache
def _mkl_is_slow() -> bool:
    """Whether PyTorch has MKL and oneDNN here, and the processor is of another maker than Intel."""
    if not (torch.backends.mkl.is_available() and fused_available()):
        return False
    try:
        of_system = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        of_system = ""
    return bool(OTHER_MAKERS.search(of_system + platform.processor()))
