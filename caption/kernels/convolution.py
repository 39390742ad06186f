"""A convolution, the sum with a shortcut and an activation in one pass over the output, for CPUs and without gradients.

oneDNN adds and clips each number while it is in a register. Separate operations read and write the output again, from
memory if it is larger than the cache. The operators are private ones of torch, which torch.compile uses.

Measured on an AMD EPYC with AVX-512, one thread, EfficientNet-Lite2 at 385 pixels with BatchNorm folded into the
convolutions: 42 images a second instead of 23 (`python -m tools.benchmark --only photos`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Activation(NamedTuple):
    """An elementwise function, and its arguments for oneDNN."""

    function: Callable[[Tensor], Tensor]
    limits: tuple[float, ...] = ()


ACTIVATIONS = {
    "none": Activation(lambda maps: maps),
    "relu": Activation(functional.relu),
    "hardtanh": Activation(functional.relu6, (0.0, 6.0)),
    "swish": Activation(functional.silu),
    "hardswish": Activation(functional.hardswish),
}
"""Activations by oneDNN's names."""


class Geometry(NamedTuple):
    """Rows and columns of a convolution's windows."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int


def fused_available() -> bool:
    """Whether torch has oneDNN's fused convolutions; like torch.compile, without those for ARM."""
    mkldnn = torch.backends.mkldnn
    return bool(mkldnn.is_available() and mkldnn.enabled and not torch.ops.mkldnn._is_mkldnn_acl_supported())


def plain(
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    activation: str = "none",
    shortcut: Tensor | None = None,
) -> Tensor:
    """activation(weight * images + bias + shortcut), in separate operations.

    Args:
        images: (B, C, H, W).
        weight: (D, C / groups, kernel rows, kernel columns).
        bias: (D,).
        geometry: of the windows.
        activation: one of `ACTIVATIONS`.
        shortcut: (B, D, rows, cols).
    """
    maps = functional.conv2d(images, weight, bias, *geometry)
    return ACTIVATIONS[activation].function(maps if shortcut is None else maps + shortcut)


def fused(
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    activation: str = "none",
    shortcut: Tensor | None = None,
) -> Tensor:
    """`plain` in one pass. Images are in channels-last format; all tensors are float32, and finite since ReLU would
    hide NaN."""
    function, limits = ACTIVATIONS[activation]
    if shortcut is not None:
        fusible = activation in ("none", "relu")
        if not fusible or shortcut.shape != _output_shape(
            images, weight, geometry
        ):  # the operator does not check
            return function(fused(images, weight, bias, geometry) + shortcut)
    operator = torch.ops.mkldnn._convolution_pointwise
    windows = (list(geometry.padding), list(geometry.stride), list(geometry.dilation), geometry.groups)
    if shortcut is None:
        return operator.default(images, weight, bias, *windows, activation, list(limits), "")
    unary = None if activation == "none" else activation
    return operator.binary(images, shortcut, weight, bias, *windows, "add", None, unary, [], None)


def _output_shape(images: Tensor, weight: Tensor, geometry: Geometry) -> tuple[int, ...]:
    sides = zip(
        images.shape[2:], weight.shape[2:], geometry.stride, geometry.padding, geometry.dilation, strict=True
    )
    return (len(images), len(weight), *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sides))
