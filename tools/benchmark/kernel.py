"""The fused additive energies on a GPU: their time, their memory traffic and their errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from caption.kernels.additive_energies import Activation, AdditiveKeys, fused_for, plain, tiled
from tools.benchmark import core
from tools.benchmark.harness import Setting, say, seconds, take_turns
from tools.documents import table

WIDTH = 512
Function = Callable[[Tensor, Tensor, Tensor, str], Tensor]
HEAD = ["B", "K", "precision", "pass", "form", "time", "times as fast", "of the copy rate", "memory", "error"]


class Case(NamedTuple):
    """Sizes of a step."""

    images: int
    queries: int
    dtype: torch.dtype = torch.bfloat16


CASES = [Case(32, 1, torch.float32), Case(32, 1), Case(32, 5), Case(256, 1)]


def kernel(setting: Setting) -> str:
    """A row for each case, pass and form."""
    if setting.device.type != "cuda" or fused_for(torch.zeros(1, 1, 1, device=setting.device)) is None:
        return "not measured: this needs --device cuda and Triton"
    rate = copy_rate(setting)
    rows = [row for case in CASES for row in compare_energies(case, setting, rate)]
    return f"The copy rate is {rate / 1e9:,.0f} GB/s.\n\n{table(HEAD, rows)}"


def copy_rate(setting: Setting) -> float:
    """Bytes read and written per second by the fastest of some large copies."""
    source = torch.rand(2**28, device=setting.device)
    target = torch.empty_like(source)
    times = take_turns({"copy": lambda: target.copy_(source)}, setting, 10)
    return 2 * source.nbytes / min(times.seconds["copy"])


def compare_energies(case: Case, setting: Setting, rate: float) -> list[list[str]]:
    """A row for each form: forward, and forward and backward."""
    from triton.testing import do_bench_cudagraph

    say(f"energies, {case.images} images, {case.queries} queries, {case.dtype}")
    fused = fused_for(step_inputs(case, setting)[1])
    forms: dict[str, Function] = {"plain": plain, "tiles": in_tiles, "Triton": fused}
    per_set = case.images * core.REGIONS * WIDTH * case.dtype.itemsize
    sets = [step_inputs(case, setting) for _ in range(-(-(2**28) // per_set))]  # more than fits into a cache
    rows = []
    for name, run in (("forward", forward), ("both", both)):
        taken: dict[str, float] = {}
        for form, function in forms.items():
            milliseconds = do_bench_cudagraph(partial(run, function, sets), return_mode="median")
            taken[form] = milliseconds / 1e3 / len(sets)
            faster = f"**{taken['plain'] / taken[form]:.1f}**"
            share = traffic(case, backward=run is both) / taken[form] / rate
            memory = core.allocated_peak(partial(run, function, sets[:1]), setting.device)
            row = [str(case.images), str(case.queries), str(case.dtype).removeprefix("torch."), name, form]
            row += [seconds(taken[form]), faster, f"{share:.0%}", f"{memory / 1e6:.1f} MB"]
            rows.append([*row, f"{largest_error(function, sets[0], run is both):.0e}"])
    return rows


def step_inputs(case: Case, setting: Setting) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, keys and v with gradient, and the gradient of the scores."""
    options = {"device": setting.device, "dtype": case.dtype}
    query = torch.randn(case.images, case.queries, WIDTH, **options)
    keys = torch.randn(case.images, core.REGIONS, WIDTH, **options)
    energy = torch.randn(WIDTH, **options) / WIDTH**0.5
    error = torch.randn(case.images, case.queries, core.REGIONS, **options)
    return query.requires_grad_(), keys.requires_grad_(), energy.requires_grad_(), error


def in_tiles(query: Tensor, keys: Tensor, energy: Tensor, activation: Activation) -> Tensor:
    return tiled(query, AdditiveKeys(keys, exponential=False), energy, activation)


@torch.no_grad()
def forward(function: Function, sets: list[tuple[Tensor, ...]]) -> None:
    for query, keys, energy, _ in sets:
        function(query, keys, energy, "tanh")


def both(function: Function, sets: list[tuple[Tensor, ...]]) -> None:
    for *given, error in sets:
        scores = function(*given, "tanh")
        torch.autograd.grad(scores, given, error.to(scores.dtype))


def traffic(case: Case, backward: bool) -> int:
    """Bytes that must be moved: each input read once in a pass, each result written once."""
    size = case.dtype.itemsize
    keys = case.images * core.REGIONS * WIDTH * size
    queries = case.images * case.queries * WIDTH * size
    scores = case.images * case.queries * core.REGIONS * size
    return keys + queries + scores + (2 * keys + 2 * queries + scores if backward else 0)


def largest_error(function: Function, given: tuple[Tensor, ...], backward: bool) -> float:
    """The largest error of scores or gradients against double precision, relative to the tensor's largest number."""
    *inputs, error = given
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    scores, expected = function(*inputs, "tanh"), plain(*exact, "tanh")
    found, truth = [scores], [expected]
    if backward:
        found += torch.autograd.grad(scores, inputs, error.to(scores.dtype))
        truth += torch.autograd.grad(expected, exact, error.double())
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, truth, strict=True))
