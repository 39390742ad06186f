"""The fused additive energies on a GPU: their time, the memory traffic, and what they are worth to a training step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from speed_common import (
    REGIONS,
    Setting,
    make_captions,
    make_decoder,
    make_regions,
    say,
    seconds,
    table,
    take_turns,
)
from textbook import textbook_of
from torch import Tensor, nn

from caption.attention import additive_energies
from caption.kernels.additive_energies import Energies, plain
from caption.kernels.fused import fused_for
from caption.objectives import CrossEntropy
from caption.objectives.base import Captions

WIDTH = 512
SHORTEST, LONGEST = 15, 25
Form = Callable[[Tensor, Tensor, Tensor, str], Tensor]
ENERGIES_HEAD = [
    "B",
    "K",
    "precision",
    "pass",
    "form",
    "time",
    "times as fast",
    "of the copy rate",
    "memory",
    "error",
]
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


def measure(setting: Setting) -> list[str]:
    """Markdown lines."""
    lines = ["## Fused additive attention", ""]
    if setting.device.type != "cuda":
        return [
            *lines,
            "Not measured: this run was on a CPU, and the kernel is for GPUs. Where there is one,",
            "`python tools/benchmark.py --only kernel --device cuda` measures it.",
        ]
    if fused_for(torch.zeros(1, 1, 1, device=setting.device)) is None:
        return [*lines, "Not measured: Triton does not run on this machine."]
    rate = copy_rate(setting)
    energies = [row for case in CASES for row in compare_energies(case, setting, rate)]
    batches = (32,) if setting.quick else (32, 128)
    training = [row for d in (2048, 512) for b in batches for row in compare_training(d, b, setting)]
    return [
        *lines,
        f"The energies e = v · tanh(k + q) of one step on {torch.cuda.get_device_name(setting.device)}, L {REGIONS},",
        f"A {WIDTH}, K queries of each of B images: the equation as it stands (*plain*), the tiles that a CPU uses,",
        "and the Triton kernel. Timed as replays of CUDA graphs, so without the host's share, over more keys than fit",
        "into a cache. *Of the copy rate*: bytes that have to move, each once, by the time, as a share of the",
        f"{rate / 1e9:,.0f} GB/s that a copy reaches here. *Memory*: the most allocated beyond the inputs. *Error*:",
        "the largest difference from the equation in double precision, of scores or gradients, as a part of the",
        "largest number.",
        "",
        *table(ENERGIES_HEAD, energies),
        "",
        f"A training step of the decoder, forward and backward, with one caption of {SHORTEST} to {LONGEST} words for",
        "each of B images. *Loss*: the relative difference from the textbook's.",
        "",
        *table(TRAINING_HEAD, training),
    ]


def copy_rate(setting: Setting) -> float:
    """Bytes read and written per second by the largest copies."""
    source = torch.rand(2**28, device=setting.device)
    target = torch.empty_like(source)
    times = take_turns({"copy": lambda: target.copy_(source)}, setting, 10)
    return 2 * source.nbytes / min(times.seconds["copy"])


def compare_energies(case: Case, setting: Setting, rate: float) -> list[list[str]]:
    """A row for each form, forward, and forward and backward."""
    say(f"energies, {case.images} images, {case.queries} queries, {case.dtype}")
    forms: dict[str, Form] = {
        "plain": plain,
        "tiles": Energies.apply,
        "Triton": fused_for(step_inputs(case, setting)[1]),
    }
    per_set = case.images * REGIONS * WIDTH * case.dtype.itemsize
    sets = [step_inputs(case, setting) for _ in range(-(-(2**28) // per_set))]
    rows = []
    for name, run in (("forward", forward), ("both", both)):
        graphs = {form: record(partial(run, function, sets)) for form, function in forms.items()}
        times = take_turns({form: graph.replay for form, graph in graphs.items()}, setting)
        for form, function in forms.items():
            time = times.median(form) / len(sets)
            share = traffic(case, backward=run is both) / time / rate
            row = [str(case.images), str(case.queries), str(case.dtype).removeprefix("torch."), name, form]
            row += [seconds(time), times.row(form, "plain")[1], f"{share:.0%}"]
            row += [f"{memory(partial(run, function, sets[:1])) / 1e6:.1f} MB"]
            row += [f"{furthest(function, sets[0], run is both):.0e}"]
            rows.append(row)
    return rows


def step_inputs(case: Case, setting: Setting) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, keys and v with gradient, and the gradient of the scores."""
    shapes = [
        (case.images, case.queries, WIDTH),
        (case.images, REGIONS, WIDTH),
        (WIDTH,),
        (case.images, case.queries, REGIONS),
    ]
    query, keys, energy, error = (
        torch.randn(shape, device=setting.device, dtype=case.dtype) for shape in shapes
    )
    return query.requires_grad_(), keys.requires_grad_(), (energy / WIDTH**0.5).requires_grad_(), error


def forward(function: Form, sets: list[tuple[Tensor, ...]]) -> None:
    with torch.no_grad():
        for query, keys, energy, _ in sets:
            function(query, keys, energy, "tanh")


def both(function: Form, sets: list[tuple[Tensor, ...]]) -> None:
    for *given, error in sets:
        scores = function(*given, "tanh")
        torch.autograd.grad(scores, given, error.to(scores.dtype))


def traffic(case: Case, backward: bool) -> int:
    """Bytes that must be moved: each input read once in a pass, each result written once."""
    size = case.dtype.itemsize
    keys = case.images * REGIONS * WIDTH * size
    queries = case.images * case.queries * WIDTH * size
    scores = case.images * case.queries * REGIONS * size
    forward = keys + queries + scores
    return forward + (2 * keys + 2 * queries + scores if backward else 0)


def record(run: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """The GPU's share of a function, to be replayed."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # compiles, and fills the allocator, before anything is recorded
        run()
        run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def memory(run: Callable[[], Any]) -> int:
    """The most bytes allocated at a time."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    return torch.cuda.max_memory_allocated() - before


def furthest(function: Form, given: tuple[Tensor, ...], backward: bool) -> float:
    """The largest error of scores or gradients, each as a part of the largest number of its tensor."""
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
    device = setting.device
    decoder, objective = make_decoder(region_size, device), CrossEntropy()
    textbook = textbook_of(decoder)
    regions = make_regions(images, region_size, device)
    captions = Captions(*make_captions(images, 1, SHORTEST, LONGEST, device))
    flat = [tensor[:, 0] for tensor in captions]

    def theirs(low: bool) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=low):
            return step(textbook, lambda: textbook.loss(regions, *flat))

    def ours(low: bool, kernel: bool) -> Tensor:
        def loss() -> Tensor:
            with torch.autocast(device.type, torch.bfloat16, enabled=low):
                return objective(decoder, decoder.project(regions), captions).value

        if kernel:
            return step(decoder, loss)
        with mock.patch.object(additive_energies, "fused_for", return_value=None):
            return step(decoder, loss)

    reference = "textbook, float32"
    forms: dict[str, Callable[[], Tensor]] = {
        reference: partial(theirs, low=False),
        "textbook, bf16": partial(theirs, low=True),
        "ours without the kernel, float32": partial(ours, low=False, kernel=False),
        "ours, float32": partial(ours, low=False, kernel=True),
        "ours without the kernel, bf16": partial(ours, low=True, kernel=False),
        "ours, bf16": partial(ours, low=True, kernel=True),
    }
    expected = forms[reference]()
    losses = {name: f"{float(abs(run() - expected) / expected):.0e}" for name, run in forms.items()}
    times = take_turns(forms, setting)
    rows = []
    for name in forms:
        rate = f"{images / times.median(name):,.0f}"
        loss = "" if name == reference else losses[name]
        rows.append([str(region_size), str(images), name, *times.row(name, reference), rate, loss])
    return rows


def step(model: nn.Module, loss: Callable[[], Tensor]) -> Tensor:
    """Gradients from nothing; returns the loss."""
    model.zero_grad()
    value = loss()
    value.backward()
    return value.detach()
