"""Linear maps by oneDNN: the same numbers and gradients as torch's, and only where it is called for."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from caption.kernels import linear as kernel
from caption.kernels.convolution import fused_available
from caption.kernels.linear import linear

pytestmark = pytest.mark.skipif(not fused_available(), reason="torch lacks oneDNN here")


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of the inputs that oneDNN gets, with any instructions."""
    shapes: list[torch.Size] = []
    own = kernel._product

    def product(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        shapes.append(inputs.shape)
        return own(inputs, weight, bias)

    monkeypatch.setattr(kernel, "least_outputs", lambda: 0)
    monkeypatch.setattr(kernel, "_product", product)
    return shapes


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("rows", [(64,), (2, 3, 16), (64, 1)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients_are_torchs(rows: tuple[int, ...], with_bias: bool, products: list[torch.Size]):
    inputs, weight, bias = tensors((*rows, 256), (192, 256), (192,))
    arguments = [inputs, weight, *[bias] * with_bias]
    exact = functional.linear(*(each.double() for each in arguments))
    found = linear(*arguments)
    assert found.shape == (*rows, 192)
    assert (found - exact).abs().max() < 1e-4  # of numbers up to 50
    (seed,) = tensors(tuple(found.shape))
    of_exact = torch.autograd.grad(exact, arguments, seed.double())
    of_found = torch.autograd.grad(found, arguments, seed)
    for one, other in zip(of_found, of_exact, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() < 1e-4
    assert len(products) == 3  # the values and both gradients


def test_a_slice_of_columns_is_copied_first():
    """With gaps between its rows the operator takes milliseconds, some 700 times as long."""
    torch.manual_seed(0)
    both, inputs = torch.randn(384, 512), torch.randn(64, 512)
    for gaps in (both[:, 256:], both[:, 256:].t(), inputs[:, ::2]):
        copied = kernel._dense(gaps)
        assert copied.is_contiguous()
        assert copied.equal(gaps)
    for dense in (both, both.t()):
        assert kernel._dense(dense) is dense
    found = kernel._product(inputs[:, :256], both[:, 256:], None)
    assert (found - inputs[:, :256].double() @ both[:, 256:].double().t()).abs().max() < 1e-4


@pytest.mark.parametrize("case", ["small", "double", "half", "autocast", "no rows"])
def test_all_else_is_left_to_torch(case: str, products: list[torch.Size]):
    rows = {"small": 2, "no rows": 0}.get(case, 64)
    dtype = {"double": torch.float64, "half": torch.bfloat16}.get(case, torch.float32)
    inputs, weight = (each.to(dtype) for each in tensors((rows, 256), (192, 256)))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=case == "autocast"):
        found, plain = linear(inputs, weight), functional.linear(inputs, weight)
    assert found.dtype == plain.dtype
    assert torch.equal(found, plain)
    assert not products


def test_the_instructions_decide(products: list[torch.Size], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel, "least_outputs", lambda: 2400)
    inputs, few, many = tensors((64, 256), (2048, 256), (2400, 256))
    assert torch.equal(linear(inputs, few), functional.linear(inputs, few))
    assert not products
    linear(inputs, many)
    assert products == [(64, 256)]


@pytest.mark.parametrize(
    ("instructions", "mkl", "least"),
    [("AVX512", True, 0), ("AVX2", True, 2400), ("DEFAULT", True, math.inf), ("AVX512", False, math.inf)],
)
def test_theleast_outputs_for_instructions(
    instructions: str, mkl: bool, least: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    assert kernel.least_outputs.__wrapped__() == least
