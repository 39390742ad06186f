"""The fused convolution against the plain one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from caption.kernels.convolution import ACTIVATIONS, Geometry, fused, fused_available, plain

pytestmark = pytest.mark.skipif(not fused_available(), reason="torch has no fused convolutions here")

ONE = Geometry((1, 1), (0, 0), (1, 1), 1)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[-1]))


def check(images: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, *more: object) -> None:
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = plain(images, weight, bias, geometry, *more)  # type: ignore[arg-type]
        found = fused(images, weight, bias, geometry, *more)  # type: ignore[arg-type]
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shortcut", [None, (3, 6, 8, 7), (3, 6, 1, 1)], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_shortcuts(activation: str, shortcut: tuple[int, ...] | None):
    more = None if shortcut is None else normal(*shortcut)
    check(normal(3, 4, 8, 7), 3 * normal(6, 4, 1, 1), normal(6), ONE, activation, more)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "geometry", [Geometry((2, 1), (1, 0), (1, 2), 1), Geometry((1, 2), (2, 3), (1, 1), 4)], ids=str
)
def test_windows(geometry: Geometry, bias: bool):
    weight = normal(8, 8 // geometry.groups, 3, 3)
    check(normal(2, 8, 9, 11), weight, normal(8) if bias else None, geometry, "relu")
    rows, cols = plain(normal(2, 8, 9, 11), weight, None, geometry).shape[2:]
    check(normal(2, 8, 9, 11), weight, None, geometry, "relu", normal(2, 8, rows, cols))
