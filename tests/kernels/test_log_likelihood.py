"""`log_likelihoods` against PyTorch's log softmax: values, gradients, precisions, and what is kept."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from caption.kernels import log_likelihood as module
from caption.kernels.log_likelihood import log_likelihoods

ROWS, WORDS = 7, 5
TARGETS = torch.tensor([0, 4, 2, 2, 1, 3, 0])


def given(dtype: torch.dtype = torch.float64, scale: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (
        (scale * torch.randn(ROWS, WORDS, generator=generator, dtype=torch.float64))
        .to(dtype)
        .requires_grad_()
    )


def as_it_stands(logits: Tensor, targets: Tensor = TARGETS) -> Tensor:
    return logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)


@pytest.fixture(params=[1, 3 * WORDS, 1 << 20], ids=["a row", "three rows", "all rows"])
def _piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", request.param)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@pytest.mark.usefixtures("_piece")
def test_values_and_gradients_are_those_of_the_log_softmax():
    logits, weights = given(), torch.arange(1.0, ROWS + 1, dtype=torch.float64)
    found, expected = log_likelihoods(logits, TARGETS), as_it_stands(logits)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    gradients = [torch.autograd.grad((value * weights).sum(), logits)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-13)


@pytest.mark.usefixtures("_piece")
def test_the_gradient_is_the_one_of_small_differences():
    assert torch.autograd.gradcheck(lambda logits: log_likelihoods(logits, TARGETS), given())


def test_by_hand():
    """Logits 0 and ln 3: probabilities 1/4 and 3/4."""
    logits = torch.tensor([[0.0, math.log(3)]], requires_grad=True)
    found = log_likelihoods(logits, torch.tensor([1]))
    assert found.item() == pytest.approx(math.log(0.75))
    (2 * found).sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.5, 0.5]]))


def test_large_logits_neither_overflow_nor_vanish():
    logits = torch.tensor([[1000.0, 0.0], [-1000.0, -1001.0]], requires_grad=True)
    found = log_likelihoods(logits, torch.tensor([1, 0]))
    torch.testing.assert_close(found, torch.tensor([-1000.0, -math.log(1 + math.exp(-1))]))
    found.sum().backward()
    assert logits.grad.isfinite().all()
    assert logits.grad[0].tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype):
    logits = given(dtype)
    single = logits.detach().float().requires_grad_()
    found, expected = log_likelihoods(logits, TARGETS), as_it_stands(single)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    assert logits.grad.dtype == dtype
    torch.testing.assert_close(logits.grad, single.grad.to(dtype))


def test_no_tensor_as_large_as_the_logits_is_kept():
    logits, kept = given(torch.bfloat16), []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.untyped_storage().data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        log_likelihoods(logits, TARGETS)
    assert kept.count(logits.untyped_storage().data_ptr()) == 1
    assert len(kept) == 4  # the targets, and two numbers for each row


def test_of_no_word_there_is_none():
    logits = torch.zeros(0, WORDS, requires_grad=True)
    found = log_likelihoods(logits, TARGETS[:0])
    assert found.shape == (0,)
    found.sum().backward()
    assert logits.grad.shape == (0, WORDS)


def test_a_gradient_of_the_gradient_is_refused():
    logits = given()
    with pytest.raises(RuntimeError, match="differentiated again"):
        torch.autograd.grad(log_likelihoods(logits, TARGETS).sum(), logits, create_graph=True)
