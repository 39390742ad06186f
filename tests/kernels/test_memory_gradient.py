"""`SharedMemory` against slices: the same values and gradients, and no tensor as large as the whole at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from helpers.dispatched import Dispatched
from torch import Tensor

from caption.kernels.additive_energies import additive_energies
from caption.kernels.memory_gradient import SharedMemory

ROWS = [4, 4, 3, 1]
SHAPES = [(4, 3), (4, 2, 5)]


class Pair(NamedTuple):
    """A record with an empty entry."""

    keys: Tensor
    values: Tensor
    mask: None = None


Steps = Callable[[Pair], list[Pair]]


def slices(record: Pair) -> list[Pair]:
    return [Pair(record.keys[:b], record.values[:b]) for b in ROWS]


def shrinking(record: Pair) -> list[Pair]:
    made = SharedMemory(record)
    return [made.first(b) for b in ROWS]


def given(dtype: torch.dtype = torch.float64) -> Pair:
    generator = torch.Generator().manual_seed(0)
    return Pair(*(torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in SHAPES))


def total(steps: list[Pair]) -> Tensor:
    """Each step reads both tensors in its own way."""
    return sum(
        ((t + 1) * step.keys).sin().sum() + step.values.pow(t + 1).sum() for t, step in enumerate(steps)
    )


def assert_same(found: Any, expected: Any) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_values_are_the_first_images():
    record = given()
    for ours, theirs in zip(shrinking(record), slices(record), strict=True):
        assert torch.equal(ours.keys, theirs.keys)
        assert torch.equal(ours.values, theirs.values)
        assert ours.mask is None
        assert ours.keys.untyped_storage().data_ptr() == record.keys.untyped_storage().data_ptr()  # no copy


def test_the_gradients_are_those_of_slices():
    record = given()
    found, expected = (torch.autograd.grad(total(form(record)), record[:2]) for form in (shrinking, slices))
    assert_same(found, expected)


def test_the_gradients_are_those_of_small_differences():
    assert torch.autograd.gradcheck(lambda *tensors: total(shrinking(Pair(*tensors))), given()[:2])


def test_images_that_no_step_reads_have_no_gradient():
    record = given()
    made = SharedMemory(record)
    made.first(2).keys.sum().backward()
    assert record.keys.grad.tolist() == [[1.0] * 3, [1.0] * 3, [0.0] * 3, [0.0] * 3]
    assert record.values.grad is None


def test_steps_outside_the_loss_do_not_contribute():
    record = given()
    found, expected = (
        torch.autograd.grad(total(form(record)[1:3]), record[:2]) for form in (shrinking, slices)
    )
    assert_same(found, expected)


def test_other_readers_of_the_memory_add_their_gradient():
    record = given()
    made = SharedMemory(record)
    loss = made.first(2).keys.sum() + (2 * made.memory.keys).sum() + (5 * record.keys).sum()
    assert torch.autograd.grad(loss, record.keys)[0][:, 0].tolist() == [8.0, 8.0, 7.0, 7.0]


def test_a_second_backward_pass_starts_from_zero():
    record = given()
    loss = total(shrinking(record))
    first = torch.autograd.grad(loss, record[:2], retain_graph=True)
    kept = [gradient.clone() for gradient in first]
    one = torch.autograd.grad(
        loss, record.keys, retain_graph=True
    )  # the other memory's steps do not run then
    assert_same(one, kept[:1])
    assert_same(torch.autograd.grad(loss, record[:2]), kept)
    assert_same(first, kept)  # not written to


def test_tensors_without_requires_grad_get_no_gradient():
    record = given()._replace(values=torch.randn(SHAPES[1]))
    steps = shrinking(record)
    assert all(step.keys.requires_grad and not step.values.requires_grad for step in steps)
    with torch.no_grad():
        assert all(step.keys.grad_fn is None for step in shrinking(record))


def test_a_gradient_that_others_use_too_is_not_written_into():
    """An addition passes the same gradient tensor to both of its terms."""
    record, other = given(), torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    made = SharedMemory(record)
    loss = (made.first(4).keys + other).sum() + (3 * made.first(4).keys).sum()
    of_keys, of_other = torch.autograd.grad(loss, (record.keys, other))
    assert (of_keys == 4).all()
    assert (of_other == 1).all()


def test_half_precision_adds_up_in_single():
    """256 + 1 is 256 in bf16, again and again; the last step is the first to go backward."""
    keys = torch.zeros(1, 1, dtype=torch.bfloat16, requires_grad=True)
    made = SharedMemory(keys)
    loss = sum((made.first(1) * scale).sum() for scale in [1.0] * 64 + [256.0])
    (gradient,) = torch.autograd.grad(loss, keys)
    assert gradient.dtype == torch.bfloat16
    assert gradient.item() == 320


@pytest.mark.parametrize(("form", "wholes"), [(slices, 8), (shrinking, 0)])
def test_no_step_makes_a_gradient_as_large_as_the_whole(form: Steps, wholes: int):
    record = given()
    loss = total(form(record))
    with Dispatched() as ran:
        loss.backward()
    assert sum(name == "slice_backward" for name, _, _ in ran.calls) == wholes


def test_a_pass_for_another_gradient_leaves_no_sum():
    """Computing the query's gradient may add to the sum, which is then never taken."""
    record, query = given(), torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    energy = torch.randn(3, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    made = SharedMemory(record._replace(keys=keys))
    loss = additive_energies(query[:3], made.first(3).keys, energy, "tanh").sum()
    expected = torch.autograd.grad(additive_energies(query[:3], keys[:3], energy, "tanh").sum(), keys)
    torch.autograd.grad(loss, query, retain_graph=True)
    assert_same(torch.autograd.grad(loss, keys, retain_graph=True), expected)
    torch.autograd.grad(loss, query, retain_graph=True)
    assert_same(torch.autograd.grad(loss, keys, retain_graph=True), expected)
    torch.autograd.grad(loss, query)
    assert (torch.autograd.grad(made.memory.keys.sum(), keys)[0] == 1).all()


@pytest.mark.parametrize("queries", [1, 2])
def test_the_additive_score_adds_to_the_sum_and_makes_no_tensor_of_its_own(queries: int):
    query = torch.randn(4, queries, 3, dtype=torch.float64, requires_grad=True)
    energy = torch.randn(3, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)

    def loss(steps: list[Tensor]) -> Tensor:
        return sum(
            (t + 1) * additive_energies(query[: len(keys)], keys, energy, "tanh").sin().sum()
            for t, keys in enumerate(steps)
        )

    made = SharedMemory(keys)
    found = torch.autograd.grad(loss([made.first(b) for b in ROWS]), (query, keys, energy))
    assert_same(found, torch.autograd.grad(loss([keys[:b] for b in ROWS]), (query, keys, energy)))
    last = loss([made.first(4)])
    with Dispatched() as ran:
        torch.autograd.grad(last, (query, keys, energy))
    assert sum(name in ("zeros", "zeros_like") and made == keys.shape for name, _, made in ran.calls) == 1


def test_a_gradient_of_the_gradient_is_refused():
    """It must not be treated as zero, although the sum is not part of autograd's graph."""
    record, energy = given(), torch.randn(5, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(total(shrinking(record)), record.keys, create_graph=True)
    scores = additive_energies(torch.zeros_like(record.values), shrinking(record)[0].values, energy, "tanh")
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(scores.sum(), record.values, create_graph=True)
