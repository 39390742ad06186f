"""Large weights of an unroll: the gradients of plain steps, in one product."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from helpers.dispatched import Dispatched
from torch import Tensor
from torch.nn import functional

from caption.kernels.unroll import DeferredLinear

IMAGES, CAPTIONS, STEPS, INPUTS, OUTPUTS = 3, 2, 4, 5, 7
CORNERS = [(3, 2), (3, 2), (2, 1), (1, 1)]  # numbers of images and captions at each step


def random_inputs(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Weight, bias, and the first input, to be differentiated."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(OUTPUTS, INPUTS), (OUTPUTS,), (IMAGES, CAPTIONS, INPUTS)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def steps(layer: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """A recurrence: each step's input is computed from the previous output, as in an LSTM."""
    outputs = []
    for b, k in CORNERS:
        outputs.append(layer(x[:b, :k]))
        x = outputs[-1][..., :INPUTS].tanh()
    return outputs


def plain(weight: Tensor, bias: Tensor, x: Tensor) -> list[Tensor]:
    return steps(lambda inputs: functional.linear(inputs, weight, bias), x)


def deferred(weight: Tensor, bias: Tensor, x: Tensor) -> list[Tensor]:
    return steps(DeferredLinear(SimpleNamespace(weight=weight, bias=bias)), x)  # type: ignore[arg-type]


def total(outputs: list[Tensor]) -> Tensor:
    return sum((t + 1) * output.sin().sum() for t, output in enumerate(outputs))  # type: ignore[return-value]


@pytest.mark.parametrize("frozen", [None, 1, 2])
def test_the_steps_and_their_gradients_are_the_same_and_frozen_tensors_have_none(frozen: int | None):
    tensors = random_inputs()
    if frozen is not None:
        tensors[frozen] = tensors[frozen].detach()
    learning = [tensor for tensor in tensors if tensor.requires_grad]
    both = [form(*tensors) for form in (deferred, plain)]
    gradients = [torch.autograd.grad(total(outputs), learning) for outputs in both]
    for pairs in (both, gradients):
        for ours, theirs in zip(*pairs, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_the_weight_gets_its_gradient_in_one_product():
    """Otherwise autograd computes one as large as the weight at every step, and sums them."""
    counts = []
    for form in (plain, deferred):
        loss = total(form(*random_inputs()))
        with Dispatched() as ran:
            loss.backward()
        shapes = [result for name, _, result in ran.calls if name == "mm"]
        counts.append(sum(shape in ((OUTPUTS, INPUTS), (INPUTS, OUTPUTS)) for shape in shapes))
    assert counts == [len(CORNERS), 1]


def test_a_pass_that_does_not_ask_for_the_weight_leaves_nothing_for_the_next():
    tensors = random_inputs()
    for form in (deferred, plain):
        loss = total(form(*tensors))
        torch.autograd.grad(loss, tensors[2], retain_graph=True)
        first = torch.autograd.grad(loss, tensors, retain_graph=True)
        again = torch.autograd.grad(loss, tensors)
        if form is deferred:
            ours = first
        for one, other in zip(first, again, strict=True):
            assert torch.equal(one, other)
    for one, other in zip(ours, first, strict=True):
        torch.testing.assert_close(one, other)


def test_autocast_takes_the_products_in_the_lower_precision_and_leaves_the_gradient_in_the_weights():
    tensors = random_inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        both = [form(*tensors) for form in (deferred, plain)]
    assert all(output.dtype == torch.bfloat16 for outputs in both for output in outputs)
    gradients = [torch.autograd.grad(total(outputs), tensors) for outputs in both]
    for ours, theirs, tensor in zip(*gradients, tensors, strict=True):
        assert ours.dtype == tensor.dtype
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)


def test_a_gradient_of_the_gradient_is_refused():
    tensors = random_inputs()
    with pytest.raises(RuntimeError, match="differentiated again"):
        torch.autograd.grad(total(deferred(*tensors)), tensors[0], create_graph=True)
