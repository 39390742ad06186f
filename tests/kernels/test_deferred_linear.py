"""`DeferredLinear` against plain steps: the same outputs and gradients, and one product for the weight."""

from __future__ import annotations

import pytest
import torch
from helpers.dispatched import Dispatched
from torch import Tensor
from torch.nn import functional

from caption.kernels.deferred_linear import DeferredLinear

IMAGES, CAPTIONS, STEPS, INPUTS, OUTPUTS = 3, 2, 4, 5, 7
CORNERS = [(3, 2), (3, 2), (2, 1), (1, 1)]  # numbers of images and captions at each step


def random_inputs(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Offsets, weight, and the first input, to be differentiated."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(IMAGES, CAPTIONS, STEPS, OUTPUTS), (OUTPUTS, INPUTS), (IMAGES, CAPTIONS, INPUTS)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def as_it_stands(offsets: Tensor, weight: Tensor, x: Tensor) -> list[Tensor]:
    """A recurrence: each step's input is computed from the previous output, as in an LSTM."""
    outputs = []
    for t, (b, k) in enumerate(CORNERS):
        outputs.append(offsets[:b, :k, t] + functional.linear(x[:b, :k], weight))
        x = outputs[-1][..., :INPUTS].tanh()
    return outputs


def late(offsets: Tensor, weight: Tensor, x: Tensor) -> list[Tensor]:
    linear = DeferredLinear(weight)
    packed = torch.cat([offsets[:b, :k, t].flatten(0, 1) for t, (b, k) in enumerate(CORNERS)])
    steps = linear.join(packed).split([b * k for b, k in CORNERS])
    outputs = []
    for t, (b, k) in enumerate(CORNERS):
        outputs.append(steps[t].view(b, k, OUTPUTS) + functional.linear(x[:b, :k], linear.weight))
        linear.record(x[:b, :k])
        x = outputs[-1][..., :INPUTS].tanh()
    return outputs


def total(outputs: list[Tensor]) -> Tensor:
    return sum((t + 1) * output.sin().sum() for t, output in enumerate(outputs))  # type: ignore[return-value]


@pytest.mark.parametrize("frozen", [None, 0, 1, 2])
def test_the_steps_and_their_gradients_are_the_same_and_frozen_tensors_have_none(frozen: int | None):
    tensors = random_inputs()
    if frozen is not None:
        tensors[frozen] = tensors[frozen].detach()
    learning = [tensor for tensor in tensors if tensor.requires_grad]
    both = [form(*tensors) for form in (late, as_it_stands)]
    gradients = [torch.autograd.grad(total(outputs), learning) for outputs in both]
    for pairs in (both, gradients):
        for ours, theirs in zip(*pairs, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_the_weight_gets_its_gradient_in_one_product():
    """Otherwise autograd computes one as large as the weight at every step, and sums them."""
    counts = []
    for form in (as_it_stands, late):
        loss = total(form(*random_inputs()))
        with Dispatched() as ran:
            loss.backward()
        shapes = [result for name, _, result in ran.calls if name == "mm"]
        counts.append(sum(shape in ((OUTPUTS, INPUTS), (INPUTS, OUTPUTS)) for shape in shapes))
    assert counts == [len(CORNERS), 1]


def test_recorded_inputs_do_not_keep_their_graph():
    """Otherwise the graph would refer to itself and never be freed."""
    _, weight, x = random_inputs()
    linear = DeferredLinear(weight)
    linear.record(x.sin())
    assert not any(kept.requires_grad for kept in linear.inputs)


def test_autocast_takes_the_products_in_the_lower_precision_and_leaves_the_gradient_in_the_weights():
    tensors = random_inputs(torch.float32)
    assert DeferredLinear(tensors[1]).weight.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert DeferredLinear(tensors[1]).weight.dtype == torch.bfloat16
        both = [form(*tensors) for form in (late, as_it_stands)]
    gradients = [torch.autograd.grad(total(outputs), tensors) for outputs in both]
    for ours, theirs, tensor in zip(*gradients, tensors, strict=True):
        assert ours.dtype == tensor.dtype
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)


def test_a_gradient_of_the_gradient_is_refused():
    tensors = random_inputs()
    with pytest.raises(RuntimeError, match="differentiated again"):
        torch.autograd.grad(total(late(*tensors)), tensors[1], create_graph=True)
