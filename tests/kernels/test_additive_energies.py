"""The tiled scores against the plain equation: values, gradients, precisions, and memory kept for the backward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from caption.kernels import additive_energies as module
from caption.kernels.additive_energies import (
    Activation,
    AdditiveKeys,
    Recomputed,
    additive_energies,
    plain,
    prepare_keys,
)

ACTIVATIONS: tuple[Activation, ...] = ("tanh", "relu")
IMAGES, QUERIES, REGIONS, WIDTH = 5, 3, 4, 6


def inputs(dtype: torch.dtype = torch.float64, queries: int = QUERIES) -> list[Tensor]:
    """Query, keys and v, to be differentiated."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(IMAGES, queries, WIDTH), (IMAGES, REGIONS, WIDTH), (WIDTH,)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def energies(query: Tensor, keys: Tensor, energy: Tensor, activation: Activation) -> Tensor:
    """The scores, as the additive score computes them."""
    return additive_energies(query, prepare_keys(keys, activation), energy, activation)


def with_gradients(form: Any, tensors: list[Tensor], activation: Activation) -> list[Tensor]:
    """Scores, and the gradients of a weighted sum of them."""
    scores = form(*tensors, activation)
    weights = torch.arange(1, scores.numel() + 1, dtype=scores.dtype).view_as(scores) / scores.numel()
    return [scores, *torch.autograd.grad((scores * weights).sum(), tensors)]


@pytest.fixture(params=[1, 2 * REGIONS * WIDTH, 1 << 17], ids=["one image", "two images", "all images"])
def _tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tiles of one image, in tiles of two with a smaller last tile, and in one tile."""
    monkeypatch.setattr(module, "TILE", request.param)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


def check_equation(form: Any, activation: Activation, queries: int) -> None:
    tensors = inputs(queries=queries)
    expected = with_gradients(plain, tensors, activation)
    for ours, theirs in zip(with_gradients(form, tensors, activation), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("_tile")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("queries", [1, QUERIES])
def test_the_tiles_are_the_equation(activation: Activation, queries: int):
    check_equation(energies, activation, queries)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("queries", [1, QUERIES])
def test_a_gpus_form_is_the_equation_and_keeps_its_inputs_alone(activation: Activation, queries: int):
    check_equation(Recomputed.apply, activation, queries)
    assert kept(Recomputed.apply, inputs(queries=queries)) == 0


def test_autocast_takes_no_precision_from_the_sums():
    """Queries and v come in the lower precision then, keys and scores stay in single; gradients have the precision of
    their tensor."""
    query, keys, energy = inputs(torch.float32)
    low = query.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        actual = with_gradients(energies, [low, keys, energy], "tanh")
    expected = with_gradients(plain, [low.detach().float().requires_grad_(), keys, energy], "tanh")
    single, half = torch.float32, torch.bfloat16
    assert [tensor.dtype for tensor in actual] == [single, half, single, single]
    for ours, theirs, digits in zip(actual, expected, [1e-5, 1e-2, 1e-5, 1e-5], strict=True):
        torch.testing.assert_close(ours.float(), theirs, rtol=digits, atol=digits)


@pytest.mark.parametrize(("images", "queries"), [(0, 2), (2, 0)])
def test_without_images_or_queries_there_is_nothing_to_score(images: int, queries: int):
    query = torch.randn(images, queries, WIDTH, requires_grad=True)
    keys = torch.randn(images, REGIONS, WIDTH, requires_grad=True)
    energy = torch.randn(WIDTH, requires_grad=True)
    scores = energies(query, keys, energy, "tanh")
    assert scores.shape == (images, queries, REGIONS)
    scores.sum().backward()
    assert (keys.grad == 0).all()
    assert (energy.grad == 0).all()


def kept(form: Any, tensors: list[Tensor]) -> int:
    """Numbers that autograd keeps for the backward pass, without the inputs."""
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        form(*tensors, "tanh")
    given_already = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    return sum(count for storage, count in storages.items() if storage not in given_already)


def test_no_tensor_of_all_queries_regions_and_widths_is_kept():
    # The plain form keeps one, so this test detects the difference.
    assert kept(plain, inputs()) >= IMAGES * QUERIES * REGIONS * WIDTH
    query, keys, energy = inputs()
    prepared = prepare_keys(keys, "tanh")
    form = lambda q, k, v, f: additive_energies(q, AdditiveKeys(k, prepared.exponential), v, f)  # noqa: E731
    # Instead of the query and v, the exponentials and multiples of them.
    assert kept(form, [query, prepared.tensor, energy]) == query.numel() + energy.numel()


def test_a_gradient_of_the_gradient_is_refused():
    query, *rest = inputs()
    for scores in (energies(query, *rest, "tanh"), energies(query, *rest, "relu").square()):
        with pytest.raises(RuntimeError, match="differentiated again"):
            torch.autograd.grad(scores.sum(), query, create_graph=True)


def compare_with_double(tensors: list[Tensor], tolerance: float = 1e-6) -> None:
    """Scores and gradients in single precision, to a part of a tensor's largest number, or of 1, the largest tanh."""
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    actual = with_gradients(energies, tensors, "tanh")
    for ours, theirs in zip(actual, with_gradients(plain, exact, "tanh"), strict=True):
        assert ours.dtype == torch.float32
        largest = max(1.0, float(theirs.detach().abs().max()))
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize(("size", "tolerance"), [(0.01, 1e-5), (1.0, 1e-6), (5.0, 1e-6)])
def test_the_error_is_that_of_single_precision(size: float, tolerance: float):
    tensors = inputs(torch.float32)
    with torch.no_grad():
        for tensor in tensors[:2]:
            tensor *= size
    assert prepare_keys(tensors[1], "tanh").exponential
    compare_with_double(tensors, tolerance)


FAR = [(60.0, -60.0), (-60.0, 60.5), (60.0, 60.0), (-60.0, -60.0), (60.0, 0.0), (0.0, -60.0), (39.0, -39.5)]


@pytest.mark.parametrize(
    ("key", "query"), [*FAR, (38.0, 39.0), (-38.0, -39.0), (-40.0, 44.5), (500.0, -500.5), (1e30, 1.0)]
)
def test_large_keys_and_queries(key: float, query: float):
    """e^{2 · 60} is not finite in single precision, and the sum of a large key and a large query may be small."""
    tensors = inputs(torch.float32)
    with torch.no_grad():
        tensors[0][1, 2, 3] = query
        tensors[1][:, 2, 3] = key
    compare_with_double(tensors)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", ["key", "query"])
def test_what_is_not_finite_gives_what_the_equation_gives(number: float, place: str):
    query, keys, energy = inputs(torch.float32)
    with torch.no_grad():
        (keys[1, 2] if place == "key" else query[1, 2])[3] = number
    scores = energies(query, keys, energy, "tanh")
    torch.testing.assert_close(scores, plain(query, keys, energy, "tanh"), equal_nan=True)
    assert scores.isnan().any() == (number != number)
