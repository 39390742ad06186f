"""All forms of a training step and of beam search on a GPU, each compared with the plain one: what `accelerate` could
choose from."""

from __future__ import annotations

import copy
import json
import statistics
import time
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

from caption.captioner import Captioner
from caption.core.runtime.atomic_files import replacing
from caption.core.runtime.peak_memory import allocated_peak
from caption.core.tensor_tree import State, leaves, map_tensors, with_leaves
from caption.decoders.base import join_steps
from caption.decoders.unroll import RecurrentDecoder
from caption.kernels import accelerate, cuda_graph, decelerate, graphs
from caption.kernels.recording import own_casts
from caption.search import BeamSearch, loop
from caption.search.loop import History
from tools.benchmark import core
from tools.benchmark.harness import Setting, clock, say, seconds, wait
from tools.benchmark.search import find, never_end
from tools.documents import table

PLAIN, COMPILERS = "plain", ("compiled", "reduce-overhead")
RECORDED = (
    "graph of an unroll",
    "graphs of steps",
    "graph of a step",
    "graph of the search",
    "reduce-overhead",
)
"""Forms whose memory is allocated when they are recorded."""
COMPILED = {(512, 32), (2048, 128)}
"""D and B for which compiled forms are measured: each takes about half a minute to compile."""
LIMIT = 240.0
"""Seconds after which nothing is compiled any more."""


class Contestant(NamedTuple):
    """One form of a piece of work."""

    run: Callable[[], Any]
    check: Callable[[], list[Tensor]]
    """Does the work, and gives the numbers that are compared."""


Form = Callable[[], Contestant]
"""Prepares a form."""


def forms(setting: Setting) -> str:
    """A row for each size, precision and form."""
    started, results = time.monotonic(), []
    for region_size, images in [(512, 4)] if setting.quick else product((512, 2048), (32, 128)):
        batch = Batch(region_size, images, setting.device)
        for low in (False, True):
            chosen = training_forms(batch, low)
            late = (region_size, images) not in COMPILED or time.monotonic() - started > LIMIT
            if late and not setting.quick:
                chosen = {name: make for name, make in chosen.items() if name not in COMPILERS}
            results += measured("training step", region_size, images, low, chosen, setting)
            save(results, setting)
    images = 8 if setting.quick else core.SEARCHED
    for region_size, low in product([512] if setting.quick else (512, 2048), (False, True)):
        chosen = search_forms(region_size, images, low, setting.device)
        results += measured("beam 5", region_size, images, low, chosen, setting)
        save(results, setting)
    say(f"{time.monotonic() - started:.0f} s")
    return table(HEAD, map(row, results))


def measured(
    work: str, region_size: int, images: int, low: bool, forms: dict[str, Form], setting: Setting
) -> list[dict[str, Any]]:
    """The numbers of each form, the first of which is the reference; the reason where one fails."""
    case = {"work": work, "D": region_size, "B": images, "precision": "bf16" if low else "float32"}
    results: list[dict[str, Any]] = []
    expected: list[Tensor] = []
    for name, make in forms.items():
        say(f"{' '.join(map(str, case.values()))}: {name}")
        started = time.monotonic()
        try:
            form = make()
            found = [tensor.detach().double().cpu() for tensor in form.check()]
            expected = expected or found
            form.run()
            prepared = time.monotonic() - started
            times = [clock(form.run, setting.device) for _ in range(setting.rounds)]
            middle, first = statistics.median(times), results[0].get("median") if results else None
            kernels, busy = profiled(form.run, setting.device)
            numbers = {
                "median": middle,
                "seconds": times,
                "times as fast": first / middle if first else 1.0,
                "difference": max(apart(*pair) for pair in zip(found, expected, strict=True)),
                "kernels": kernels,
                "busy": busy / middle if kernels else None,
                "memory": None if name in RECORDED else allocated_peak(form.run, setting.device),
                "prepared in": prepared,
            }
        except Exception as error:  # the others are measured
            numbers = {"failed": f"{type(error).__name__}: {error}"[:300]}
        results.append(case | {"form": name} | numbers)
    return results


HEAD = (
    "work",
    "D",
    "B",
    "precision",
    "form",
    "time",
    "times as fast",
    "difference",
    "kernels",
    "busy",
    "memory",
)


def row(result: dict[str, Any]) -> list[str]:
    """A row of the table."""
    case = [str(result[name]) for name in HEAD[:5]]
    if "failed" in result:
        return [*case, " ".join(result["failed"].replace("|", "/").split()), *[""] * 5]
    return [
        *case,
        seconds(result["median"]),
        f"**{result['times as fast']:.1f}**",
        f"{result['difference']:.0e}",
        str(result["kernels"] or ""),
        "" if result["busy"] is None else f"{result['busy']:.0%}",
        "" if result["memory"] is None else f"{result['memory'] / 1e6:.0f} MB",
    ]


def apart(one: Tensor, other: Tensor) -> float:
    """‖difference‖ / ‖other‖; infinite for other shapes."""
    if one.shape != other.shape:
        return float("inf")
    return float((one - other).norm() / other.norm().clamp(min=1e-12))


def profiled(run: Callable[[], Any], device: torch.device) -> tuple[int, float]:
    """Number of kernels and copies on the GPU, and the seconds in which at least one ran."""
    if device.type != "cuda":
        return 0, 0.0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        wait(device)
    events = profile.profiler.kineto_results.events()
    spans = sorted(
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in events
        if event.device_type() == torch._C._autograd.DeviceType.CUDA
    )
    busy, until = 0, 0
    for start, end in spans:
        busy += max(0, end - max(start, until))
        until = max(until, end)
    return len(spans), busy / 1e9


def save(results: list[dict[str, Any]], setting: Setting) -> None:
    """Write the numbers so far as JSON."""
    if setting.json is not None:
        with replacing(setting.json) as file:
            file.write(json.dumps(results, indent=1).encode())


# -- a training step -----------------------------------------------------------------------------------------------


class Batch:
    """A captioner and a batch for it."""

    def __init__(self, region_size: int, images: int, device: torch.device) -> None:
        self.captioner = core.make_captioner(region_size, device)
        decelerate(self.captioner)
        self.vectors = core.make_vectors(images, region_size, device)
        self.captions = core.make_captions(images, device)


def training_forms(batch: Batch, low: bool) -> dict[str, Form]:
    """Forward and backward of a batch, by form. What might break CUDA comes last."""
    device = batch.vectors.device

    def exchanged(**options: Any) -> Form:
        def make() -> Contestant:
            captioner = copy.deepcopy(batch.captioner)
            accelerate(captioner, "cuda", **options)
            return training_step(captioner, batch, low)

        return make

    forms: dict[str, Form] = {
        PLAIN: lambda: training_step(copy.deepcopy(batch.captioner), batch, low),
        "joined": exchanged(),
    }
    if has_graphs(device):
        forms |= {
            "graph of an unroll": exchanged(graphs=True),
            "compiled": exchanged(compile=True),
            "reduce-overhead": lambda: reduced_overhead(batch, low),
            "graphs of steps": lambda: graphed_steps(batch, low),
        }
    return forms


def has_graphs(device: torch.device) -> bool:
    return device.type == "cuda"


def training_step(
    captioner: Captioner, batch: Batch, low: bool, begin: Callable[[], None] = lambda: None
) -> Contestant:
    """Forward and backward; `begin` is called before."""
    decoder = captioner.decoder

    def loss() -> Tensor:
        begin()
        with torch.autocast(batch.vectors.device.type, torch.bfloat16, enabled=low):
            return core.caption_loss(captioner, batch.vectors, batch.captions)

    def check() -> list[Tensor]:
        """Loss and gradients of the second of two steps."""
        core.step(decoder, loss)
        value = core.step(decoder, loss)
        assert not graphs.took_plain(decoder), "it has fallen back to the plain form, see the log"
        return [value, *(weight.grad for weight in decoder.parameters() if weight.grad is not None)]

    return Contestant(lambda: core.step(decoder, loss), check)


class Step(nn.Module):
    """A step between flat tuples of tensors, as `make_graphed_callables` wants it.

    Args:
        decoder: whose `advance` it is.
        state: with its structure.
    """

    def __init__(self, decoder: RecurrentDecoder, state: State) -> None:
        super().__init__()
        self.decoder = decoder
        self.before = [state]
        self.after: list[Any] = []

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        *flat, vectors = tensors
        after, outputs = type(self.decoder).advance(self.decoder, with_leaves(self.before[0], flat), vectors)
        self.after = [(after.carried, after.trace, outputs)]
        return tuple(leaves(self.after[0]))


def graphed_steps(batch: Batch, low: bool) -> Contestant:
    """A graph for each step, since each keeps what its backward pass reads."""
    captioner = copy.deepcopy(batch.captioner)
    decoder: Any = captioner.decoder
    views, words = core.views_of(batch.vectors), batch.captions.words
    with torch.autocast(batch.vectors.device.type, torch.bfloat16, enabled=low, cache_enabled=False):
        state = decoder.start(captioner.project(views))
        vectors = decoder.word_vectors(words[:, :, 0])
        # After one step, the precision is that of all further ones.
        # A copy: weights of a graph that is alive would be waited for while another is recorded.
        state = map_tensors(as_sample, State(state.shared, decoder.advance(state, vectors)[0].carried, None))
        steps = [Step(decoder, state) for _ in range(words.shape[2])]
        # Each step reads its own state and word, and all read one memory.
        shared = list(map(as_sample, leaves(state.shared)))
        samples = tuple((*shared, *map(as_sample, leaves(state.carried)), as_sample(vectors)) for _ in steps)
        graphed = torch.cuda.make_graphed_callables(tuple(steps), samples, allow_unused_input=True)

    def unroll(state: State, embedded: Tensor) -> Any:
        columns = []
        for step, run, vectors in zip(steps, graphed, embedded.unbind(2), strict=True):
            query = decoder.query_of(state.carried).detach()
            flat: Any = run(*leaves(state._replace(trace=None)), vectors)
            carried, trace, outputs = with_leaves(step.after[0], flat)
            columns.append((outputs, trace, query))
            state = State(state.shared, carried, None)
        return join_steps(columns)

    decoder.unroll = unroll
    return training_step(captioner, batch, low)


def as_sample(tensor: Tensor) -> Tensor:
    """A copy that learns if the tensor does."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def reduced_overhead(batch: Batch, low: bool) -> Contestant:
    """The plain step by torch.compile with CUDA graphs, for one shape."""
    captioner = copy.deepcopy(batch.captioner)
    decoder: Any = captioner.decoder
    compiled = torch.compile(type(decoder).advance, mode="reduce-overhead", dynamic=False)

    def advance(state: State, vectors: Tensor) -> Any:
        # A copy, because a slice is recompiled for each shape of its base tensor.
        return compiled(decoder, state, vectors.clone(memory_format=torch.contiguous_format))

    decoder.advance = advance
    return training_step(captioner, batch, low, torch.compiler.cudagraph_mark_step_begin)


# -- search --------------------------------------------------------------------------------------------------------


def search_forms(region_size: int, images: int, low: bool, device: torch.device) -> dict[str, Form]:
    """Beam search for captions of 20 words, by form."""
    captioner: Any = core.make_captioner(region_size, device)
    decelerate(captioner)
    never_end(captioner.decoder)
    captioner.eval()
    vectors = core.make_vectors(images, region_size, device)
    search = BeamSearch(core.BEAM, core.STEPS)

    def form(exchanged: bool, recorded: bool = False) -> Form:
        def make() -> Contestant:
            model = copy.deepcopy(captioner)
            if exchanged:
                accelerate(model, "cuda", graphs=recorded)

            def check() -> list[Tensor]:
                found = find(model.decoder, vectors, search, low)
                found = find(model.decoder, vectors, search, low)
                assert not graphs.took_plain(model.decoder), (
                    "it has fallen back to the plain form, see the log"
                )
                return [torch.tensor(words) for words in found]

            return Contestant(lambda: find(model.decoder, vectors, search, low), check)

        return make

    forms: dict[str, Form] = {PLAIN: form(False), "joined": form(True)}
    if has_graphs(device):
        forms |= {
            "graph of a step": form(True, recorded=True),
            "graph of the search": lambda: graphed_search(copy.deepcopy(captioner), vectors, search, low),
        }
    return forms


@torch.no_grad()
def graphed_search(captioner: Captioner, vectors: Tensor, search: BeamSearch, low: bool) -> Contestant:
    """All steps of a search as one graph, without a look at whether it could end; its hypotheses are traced back
    outside."""
    accelerate(captioner, "cuda")
    own = vectors.clone()
    reached: list[tuple[History, Any, int]] = []

    def keep(history: History, endings: Any, end: int) -> None:
        reached[:] = [(history, endings, end)]

    def run() -> None:
        with torch.autocast(vectors.device.type, torch.bfloat16, enabled=low), own_casts():
            core.find_captions(captioner.decoder, own, search)

    with mock.patch.object(loop, "EVERY", 1 << 30), mock.patch.object(History, "backtrack", keep):
        cuda_graph.warm_up(run)
        replay, _ = cuda_graph.record(run, cuda_graph.new_pool())
    history, endings, end = reached[0]

    @torch.no_grad()
    def find() -> list[Tensor]:
        own.copy_(vectors)
        replay()
        found = history.backtrack(endings, end)
        lengths = found.lengths[:, 0].tolist()
        return [words[:length] for words, length in zip(found.words[:, 0].cpu(), lengths, strict=True)]

    return Contestant(find, find)
