"""The fused additive energies on a GPU: their time, their memory traffic, and their gain in a training step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from caption.kernels.additive_energies import Energies, plain
from caption.kernels.fused import fused_for
from tools.benchmark import core
from tools.benchmark.harness import Setting, say, seconds, take_turns
from tools.benchmark.training import REFERENCE, Batch, Form, measure_forms
from tools.documents import table

WIDTH = 512
Function = Callable[[Tensor, Tensor, Tensor, str], Tensor]
HEAD = ["B", "K", "precision", "pass", "form", "time", "times as fast", "of the copy rate", "memory", "error"]
TRAINING_HEAD = ["D", "B", "form", "time", "times as fast", "captions per second", "loss"]


class Case(NamedTuple):
    """Sizes of a step."""

    images: int
    queries: int
    dtype: torch.dtype


CASES = [
    Case(32, 1, torch.float32),
    Case(32, 1, torch.bfloat16),
    Case(32, 5, torch.bfloat16),
    Case(256, 1, torch.bfloat16),
]


def kernel(setting: Setting) -> str:
    """The energies alone, and training steps with and without the kernel."""
    if setting.device.type != "cuda":
        return (
            "Not measured: this run was on a CPU, and the kernel is for GPUs. With a GPU,\n"
            "`python -m tools.benchmark --only kernel --device cuda` measures it."
        )
    if fused_for(torch.zeros(1, 1, 1, device=setting.device)) is None:
        return "Not measured: Triton does not run on this machine."
    rate = copy_rate(setting)
    rows = [row for case in CASES for row in compare_energies(case, setting, rate)]
    batches = (32,) if setting.quick else (32, 128)
    training = [
        row for d in (2048, 512) for images in batches for row in compare_training(d, images, setting)
    ]
    return (
        f"The copy rate is {rate / 1e9:,.0f} GB/s.\n\n{table(HEAD, rows)}\n\n"
        f"Training steps:\n\n{table(TRAINING_HEAD, training)}"
    )


def copy_rate(setting: Setting) -> float:
    """Bytes read and written per second by the fastest of some large copies."""
    source = torch.rand(2**28, device=setting.device)
    target = torch.empty_like(source)
    times = take_turns({"copy": lambda: target.copy_(source)}, setting, 10)
    return 2 * source.nbytes / min(times.seconds["copy"])


def compare_energies(case: Case, setting: Setting, rate: float) -> list[list[str]]:
    """A row for each form: forward, and forward and backward."""
    say(f"energies, {case.images} images, {case.queries} queries, {case.dtype}")
    fused = fused_for(step_inputs(case, setting)[1])
    forms: dict[str, Function] = {"plain": plain, "tiles": Energies.apply, "Triton": fused}
    per_set = case.images * core.REGIONS * WIDTH * case.dtype.itemsize
    sets = [step_inputs(case, setting) for _ in range(-(-(2**28) // per_set))]  # more than fits into a cache
    rows = []
    for name, run in (("forward", forward), ("both", both)):
        graphs = {form: record(partial(run, function, sets)) for form, function in forms.items()}
        times = take_turns({form: graph.replay for form, graph in graphs.items()}, setting)
        for form, function in forms.items():
            taken = times.median(form) / len(sets)
            share = traffic(case, backward=run is both) / taken / rate
            memory = core.allocated_peak(partial(run, function, sets[:1]), setting.device)
            row = [str(case.images), str(case.queries), str(case.dtype).removeprefix("torch."), name, form]
            row += [seconds(taken), times.row(form, "plain")[1], f"{share:.0%}", f"{memory / 1e6:.1f} MB"]
            rows.append([*row, f"{largest_error(function, sets[0], run is both):.0e}"])
    return rows


def step_inputs(case: Case, setting: Setting) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, keys and v with gradient, and the gradient of the scores."""
    shapes = [
        (case.images, case.queries, WIDTH),
        (case.images, core.REGIONS, WIDTH),
        (WIDTH,),
        (case.images, case.queries, core.REGIONS),
    ]
    query, keys, energy, error = (torch.randn(s, device=setting.device, dtype=case.dtype) for s in shapes)
    return query.requires_grad_(), keys.requires_grad_(), (energy / WIDTH**0.5).requires_grad_(), error


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


def record(run: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """What a function does on the GPU, as a graph to replay, so that the host's share is not timed."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # compiles, and fills the allocator, before recording
        run()
        run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


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


def compare_training(region_size: int, images: int, setting: Setting) -> list[list[str]]:
    """A row for each form of the decoder."""
    say(f"training step, D {region_size}, {images} images")
    batch = Batch(region_size, setting.device, images)
    forms = {
        REFERENCE: batch.theirs(),
        "textbook, bf16": batch.theirs(low=True),
        "ours without the kernel, float32": without_kernel(batch.ours()),
        "ours, float32": batch.ours(),
        "ours without the kernel, bf16": without_kernel(batch.ours(low=True)),
        "ours, bf16": batch.ours(low=True),
    }
    found = measure_forms(forms, setting)
    rates = {name: f"{images / found.times.median(name):,.0f}" for name in forms}
    return [
        [
            str(region_size),
            str(images),
            name,
            *found.times.row(name, REFERENCE),
            rates[name],
            found.loss[name],
        ]
        for name in forms
    ]


def without_kernel(form: Form) -> Form:
    """The same form with the energies in tiles. The backward pass keeps to what the forward pass chose."""

    def loss() -> Tensor:
        with mock.patch("caption.kernels.additive_energies.fused_for", return_value=None):
            return form.loss()

    return Form(form.model, loss)
