"""The fused additive energies against the equation, on a GPU or under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils import deterministic

from caption.kernels import additive_energies as energies_module
from caption.kernels.additive_energies import Activation, plain

triton = pytest.importorskip("triton", reason="needs Triton, which comes with PyTorch for GPUs")

import triton.language as tl  # noqa: E402
from triton.runtime.interpreter import InterpretedFunction  # noqa: E402

from caption.kernels import additive_triton  # noqa: E402
from caption.kernels.additive_triton import fused_energies  # noqa: E402

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
INTERPRETER = pytest.mark.skipif(
    tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7),
    reason="the interpreter of Triton before 3.7 does not take numbers from NumPy 2.4",
)
KERNELS = ("forward_kernel", "backward_kernel")


def summed(tensor: Any, axis: int) -> Any:
    """`tl.sum`, which is compiled unless TRITON_INTERPRET was set before Triton was imported."""
    return tl.reduce(tensor, axis, tl.standard._sum_combine)


def largest(tensor: Any) -> Any:
    """`tl.max`, likewise."""
    return tl.reduce(tensor, None, tl.standard._elementwise_max)


@pytest.fixture(
    params=[pytest.param("cpu", marks=INTERPRETER, id="interpreter"), pytest.param("cuda", marks=NEEDS_GPU)]
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The device of the kernels; memory that they do not write is NaN."""
    if request.param == "cpu":
        for name in KERNELS:
            monkeypatch.setattr(additive_triton, name, InterpretedFunction(getattr(additive_triton, name).fn))
        monkeypatch.setattr(tl, "sum", summed)
        monkeypatch.setattr(tl, "max", largest)
    monkeypatch.setattr(deterministic, "fill_uninitialized_memory", True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # needed for deterministic matrix products
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield request.param
    torch.use_deterministic_algorithms(False)


class Inputs(NamedTuple):
    """Leaves with gradient."""

    query: Tensor
    keys: Tensor
    energy: Tensor


def inputs(sizes: tuple[int, int, int, int], device: str, dtype: torch.dtype = torch.float32) -> Inputs:
    """B, K, L, A -> tensors whose sums k + q lie where tanh bends, with energies of order 1."""
    torch.manual_seed(0)
    images, queries, regions, width = sizes
    tensors = (
        torch.randn(images, queries, width),
        torch.randn(images, regions, width),
        torch.randn(width) / max(width, 1) ** 0.5,
    )
    return Inputs(*(tensor.to(device, dtype).requires_grad_() for tensor in tensors))


def check(tensors: Inputs, activation: Activation, error: Tensor | None = None) -> None:
    """Scores and gradients equal those of the equation in double precision.

    Single precision: to 1e-5 of a tensor's largest number. Half: the scores, which come in single precision, too, and
    the gradients to 1e-3 before they are rounded, that is to one unit of their own last place.
    """
    exact = Inputs(*(tensor.detach().double().requires_grad_() for tensor in tensors))
    scores, expected = fused_energies(*tensors, activation), plain(*exact, activation)
    if error is None:
        error = torch.randn_like(scores)
    wanted = [i for i, tensor in enumerate(tensors) if tensor.requires_grad]
    actual = torch.autograd.grad(scores, [tensors[i] for i in wanted], error)
    gradients = torch.autograd.grad(expected, [exact[i] for i in wanted], error.double())
    assert scores.dtype == torch.float32
    close(scores, expected, 1e-5)
    for i, gradient, truth in zip(wanted, actual, gradients, strict=True):
        assert gradient.dtype == tensors[i].dtype
        half = gradient.dtype != torch.float32
        close(gradient, truth, 1e-3 if half else 1e-5, torch.finfo(gradient.dtype).eps if half else 0.0)


def close(actual: Tensor, expected: Tensor, tolerance: float, unit: float = 0.0) -> None:
    """To a part of the largest number, and to a unit of each number's own last place."""
    largest = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(
        actual.detach().double(), expected.detach(), rtol=unit, atol=tolerance * largest
    )


SIZES = [
    (1, 1, 1, 1),
    (2, 1, 7, 5),
    (3, 4, 16, 8),  # nothing is masked
    (2, 3, 33, 64),  # one region too many for a tile
    (1, 2, 49, 300),  # widths and regions that are not powers of 2
    (2, 2, 5, 1030),
    (1, 1, 196, 512),  # the paper's
    (1, 2, 3, 9000),  # one region is more than a tile
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_equation(sizes: tuple[int, int, int, int], activation: Activation, device: str):
    check(inputs(sizes, device), activation)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("sizes", [(2, 3, 33, 64), (1, 2, 20, 300)], ids=str)
def test_half_precision(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, activation: Activation, device: str
):
    check(inputs(sizes, device, dtype), activation)


def test_precisions_may_differ(device: str):
    """As under autocast: v is a weight, in single precision."""
    query, keys, energy = inputs((2, 3, 9, 20), device)
    low = [tensor.detach().bfloat16().requires_grad_() for tensor in (query, keys)]
    check(Inputs(low[0], low[1], energy), "tanh")
    check(Inputs(query, low[1], energy), "relu")


def test_autocast_changes_nothing(device: str):
    tensors = inputs((2, 3, 9, 20), device)
    expected = fused_energies(*tensors, "tanh")
    gradients = torch.autograd.grad(expected.square().sum(), tensors)
    with torch.autocast(device, torch.bfloat16):
        scores = fused_energies(*tensors, "tanh")
        actual = torch.autograd.grad(scores.square().sum(), tensors)
    assert torch.equal(scores, expected)
    assert all(torch.equal(a, b) for a, b in zip(actual, gradients, strict=True))


LAYOUTS = {
    "regions first": lambda keys: keys.transpose(0, 1).contiguous().transpose(0, 1),
    "widths first": lambda keys: keys.transpose(1, 2).contiguous().transpose(1, 2),
    "the first images": lambda keys: torch.cat((keys, keys + 1))[: len(keys)],
    "every second number": lambda keys: keys.repeat_interleave(2, 2)[..., ::2],
    "one image for all": lambda keys: keys[:1].expand_as(keys),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_keys_are_read_where_they_lie(layout: str, device: str):
    query, keys, energy = inputs((3, 2, 35, 12), device)
    laid = LAYOUTS[layout](keys.detach()).requires_grad_()
    check(Inputs(query, laid, energy), "tanh")


def test_queries_and_gradients_may_have_any_strides(device: str):
    query, keys, energy = inputs((2, 3, 9, 12), device)
    query = query.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    energy = energy.detach().repeat_interleave(2)[::2].requires_grad_()
    check(Inputs(query, keys, energy), "tanh", torch.ones(1, 1, 1, device=device).expand(2, 3, 9))
    check(Inputs(query, keys, energy), "tanh", torch.randn(9, 3, 2, device=device).transpose(0, 2))


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_keys_may_have_strides_beyond_32_bits(dimension: int, device: str, tmp_path: Path):
    if device == "cuda":
        store = torch.zeros(2**31 + 1000, dtype=torch.bfloat16, device=device)
    else:  # a sparse file: unwritten parts take no space
        store = torch.from_file(str(tmp_path / "keys"), True, 2**31 + 1000, dtype=torch.bfloat16)
    strides = [12, 4, 1]
    strides[dimension] = 2**30 + 100
    keys = store.as_strided((3, 3, 3), strides)
    query, values, energy = inputs((3, 2, 3, 3), device, torch.bfloat16)
    keys.copy_(values.detach())
    scores = fused_energies(query, keys, energy, "tanh")
    actual = torch.autograd.grad(scores.sum(), (query, energy))
    packed = fused_energies(query, values, energy, "tanh")
    assert torch.equal(scores, packed)
    expected = torch.autograd.grad(packed.sum(), (query, energy))
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4)], ids=str)
def test_nothing_gives_nothing(sizes: tuple[int, int, int, int], device: str):
    tensors = inputs(sizes, device)
    scores = fused_energies(*tensors, "tanh")
    assert scores.shape == sizes[:3]
    for gradient, tensor in zip(torch.autograd.grad(scores.sum(), tensors), tensors, strict=True):
        assert torch.equal(gradient, torch.zeros_like(tensor))


def test_only_requested_gradients_are_computed(device: str):
    query, keys, energy = inputs((2, 3, 33, 12), device)
    check(Inputs(query, keys.detach(), energy), "tanh")
    check(Inputs(query.detach(), keys, energy.detach()), "relu")


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:divide by zero encountered in log2")
def test_far_from_the_bend(device: str):
    """tanh is ±1 there, and its slope 0, not ∞ · 0."""
    query = torch.tensor([[[1e4, -1e4, 60.0, -60.0]]], device=device, requires_grad=True)
    keys = torch.zeros(1, 1, 4, device=device, requires_grad=True)
    energy = torch.tensor([1.0, 2.0, 4.0, 8.0], device=device, requires_grad=True)
    scores = fused_energies(query, keys, energy, "tanh")
    assert scores.tolist() == [[[1.0 - 2.0 + 4.0 - 8.0]]]
    of_query, of_keys, of_energy = torch.autograd.grad(scores.sum(), (query, keys, energy))
    assert of_query.abs().max() < 1e-20
    assert of_keys.abs().max() < 1e-20
    assert of_energy.tolist() == [1.0, -1.0, 1.0, -1.0]


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize(
    ("key", "query"),
    [(60, -60), (-60, 60.5), (60, 1), (1, -60), (60, 60), (39, 39.5), (39, -39.5), (500, -500.5), (1, 1e9)],
)
def test_large_keys_and_queries(key: float, query: float, device: str):
    """Beyond 40 an exponential leaves float32, and the sum of a key and a query is still small."""
    tensors = inputs((2, 3, 33, 20), device)
    with torch.no_grad():
        tensors.query[1, 2, 3] += query
        tensors.keys[:, 31, 3] += key
    check(tensors, "tanh")


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_infinite_keys_and_queries(device: str):
    query, keys, energy = inputs((1, 2, 3, 4), device)
    with torch.no_grad():
        keys[0, 1, 2], keys[0, 2, 1], query[0, 1, 3] = torch.inf, -torch.inf, torch.inf
    expected = plain(query, keys, energy, "tanh")
    torch.testing.assert_close(fused_energies(query, keys, energy, "tanh"), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_nan_is_not_hidden(activation: Activation, device: str):
    query, keys, energy = inputs((1, 2, 3, 4), device)
    with torch.no_grad():
        keys[0, 1, 2] = torch.nan
    scores = fused_energies(query, keys, energy, activation)
    assert scores.isnan().tolist() == [[[False, True, False]] * 2]


def test_relu_has_no_slope_at_zero(device: str):
    tensors = Inputs(*(torch.zeros(1, 1, n, device=device, requires_grad=True) for n in (1, 1, 1)))
    energy = torch.ones(1, device=device)
    of_query, of_keys = torch.autograd.grad(
        fused_energies(tensors[0], tensors[1], energy, "relu"), tensors[:2]
    )
    assert of_query.item() == of_keys.item() == 0.0


def test_a_second_derivative_is_refused(device: str):
    tensors = inputs((1, 1, 2, 3), device)
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(fused_energies(*tensors, "tanh").sum(), tensors.query, create_graph=True)


@pytest.mark.parametrize("wrong", [((2, 3, 5), 4), ((1, 3, 4), 4), ((2, 3, 4), 5)], ids=str)
def test_sizes_that_do_not_fit_are_refused(wrong: tuple[tuple[int, ...], int]):
    with pytest.raises(ValueError, match=r"do not fit each other: .*\(2, 6, 4\)"):
        fused_energies(torch.zeros(wrong[0]), torch.zeros(2, 6, 4), torch.zeros(wrong[1]), "tanh")


CAPABILITIES = [(80, "fp32"), (90, "bf16")]


@pytest.mark.parametrize(("capability", "dtype"), CAPABILITIES)
@pytest.mark.parametrize("general", [True, False], ids=["any sizes", "all sizes 1"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_for_gpus(name: str, general: bool, capability: int, dtype: str):
    """The target GPUs need not be present; Triton turns sizes and strides of 1 into constants."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(additive_triton, name)
    if isinstance(kernel, InterpretedFunction):
        pytest.skip("TRITON_INTERPRET is set")
    pointers = {"query": dtype, "keys": dtype, "grad_keys": dtype}
    constants = {
        "RELU": False,
        "NEEDS_KEYS_GRAD": True,
        "ROWS": 16 if general else 1,
        "COLUMNS": 512 if general else 1,
    }
    signature = {}
    for argument in kernel.arg_names:
        if argument.isupper():
            signature[argument] = "constexpr"
        elif argument.split("_")[-1] in ("stride", "queries", "regions", "width"):
            signature[argument] = "i32" if general else "constexpr"
            if not general:
                constants[argument] = 1
        else:
            signature[argument] = "*" + pointers.get(argument, "fp32")
    places = {(kernel.arg_names.index(key),): value for key, value in constants.items() if key in signature}
    compiled = triton.compile(
        ASTSource(kernel, signature, places, {}),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": 4, "enable_fp_fusion": True},
    )
    assert compiled.asm["cubin"]


@NEEDS_GPU
def test_the_same_gradients_in_every_run():
    tensors = inputs((8, 3, 196, 512), "cuda")
    error = torch.randn(8, 3, 196, device="cuda")
    first, second = (torch.autograd.grad(fused_energies(*tensors, "tanh"), tensors, error) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@NEEDS_GPU
def test_no_tensor_of_all_queries_regions_and_widths():
    images, queries, regions, width = sizes = (8, 16, 196, 512)
    tensors = inputs(sizes, "cuda")
    fused_energies(*tensors, "tanh").sum().backward()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    fused_energies(*tensors, "tanh").sum().backward()
    assert torch.cuda.max_memory_allocated() - before < images * queries * regions * width * 4 / 2


@NEEDS_GPU
def test_a_compiler_makes_its_own():
    tensors = inputs((4, 2, 49, 64), "cuda")
    compiled = torch.compile(energies_module.additive_energies, fullgraph=True)
    torch.testing.assert_close(
        compiled(*tensors, "tanh"), fused_energies(*tensors, "tanh"), rtol=1e-4, atol=1e-5
    )
