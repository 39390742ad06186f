"""A training step of the decoder, ours and the textbook's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from speed_common import (
    Setting,
    make_captions,
    make_decoder,
    make_regions,
    say,
    seconds,
    table,
    take_turns,
)
from textbook import gradients, textbook_of
from torch import Tensor, nn

from caption.decoders import LSTMDecoder
from caption.objectives import CrossEntropy
from caption.objectives.base import Captions

IMAGES, SHORTEST, LONGEST = 32, 15, 25
OPERATORS = 10
HEAD = ["D", "form", "time", "times as fast", "peak memory", "loss", "gradients"]


def measure(setting: Setting) -> list[str]:
    """Markdown lines."""
    rows: list[list[str]] = []
    for region_size in (2048, 512):
        say(f"training step, D {region_size}")
        rows += compare(region_size, setting)
    return [
        "## Training step of the decoder",
        "",
        f"Forward and backward: {IMAGES} images with one caption of {SHORTEST} to {LONGEST} words each, L 196,",
        "V 9,500, embedding, LSTM and attention 512; cross-entropy and doubly stochastic term; regions without",
        "gradient. *Loss* and *gradients*: the largest relative difference from the textbook's, of the gradients that",
        "of the weight where it is largest (‖difference‖ / ‖gradient‖). *Peak memory*: the most allocated at a time",
        "beyond weights, gradients and input.",
        "",
        *table(HEAD, rows),
        "",
        "Where the time of one step goes, in float32 with D 2048, under a profiler: operators by their own time.",
        "",
        *table(["operator", "textbook", "calls", "ours", "calls"], operators(2048, setting)),
    ]


Form = tuple[nn.Module, Callable[[], Tensor]]


def make_forms(region_size: int, device: torch.device) -> dict[str, Form]:
    """Model and loss of each form, by name; the textbook's first, with the same weights and data for all."""
    decoder, objective = make_decoder(region_size, device), CrossEntropy()
    textbook = textbook_of(decoder)
    regions = make_regions(IMAGES, region_size, device)
    captions = Captions(*make_captions(IMAGES, 1, SHORTEST, LONGEST, device))
    words, targets, lengths = (tensor[:, 0] for tensor in captions)

    def ours(decoder: LSTMDecoder, low: bool = False) -> Form:
        def loss() -> Tensor:
            with torch.autocast(device.type, torch.bfloat16, enabled=low):
                return objective(decoder, decoder.project(regions), captions).value

        return decoder, loss

    forms = {
        "textbook, float32": (textbook, lambda: textbook.loss(regions, words, targets, lengths)),
        "ours, float32": ours(decoder),
        "ours, bf16-mixed": ours(decoder, low=True),
    }
    if device.type != "cpu":  # whose step is never compiled
        compiled = copy.deepcopy(decoder)
        compiled.compile_step()
        forms["ours, bf16-mixed, compiled"] = ours(compiled, low=True)
    return forms


def compare(region_size: int, setting: Setting) -> list[list[str]]:
    """A row for each form."""
    device = setting.device
    forms = make_forms(region_size, device)
    reference, *others = forms
    expected = step(*forms[reference])
    differences = {reference: ["", ""]}
    for name in others:
        loss = float(abs(step(*forms[name]) - expected) / expected)
        furthest = max(
            float((a - b).norm() / b.norm()) for _, a, b in gradients(forms[name][0], forms[reference][0])
        )
        differences[name] = [f"{loss:.0e}", f"{furthest:.0e}"]
    memory = {name: f"{peak(loss, device) / 1e6:.0f} MB" for name, (_, loss) in forms.items()}
    times = take_turns({name: partial(step, *form) for name, form in forms.items()}, setting)
    return [
        [str(region_size), name, *times.row(name, reference), memory[name], *differences[name]]
        for name in forms
    ]


def operators(region_size: int, setting: Setting) -> list[list[str]]:
    """The operators that take longest in either form, with the time and the calls in both."""
    forms = make_forms(region_size, setting.device)
    reference, ours = ({e.key: e for e in profile_step(*form)} for form in list(forms.values())[:2])
    took = {
        name: [form[name].self_cpu_time_total if name in form else 0.0 for form in (reference, ours)]
        for name in reference | ours
    }
    longest = sorted(took, key=lambda name: -max(took[name][0], 5 * took[name][1]))[:OPERATORS]
    return [
        [f"`{name}`", *(figure for form in (reference, ours) for figure in of_operator(form.get(name)))]
        for name in sorted(longest, key=lambda name: -took[name][0])
    ]


def profile_step(model: nn.Module, loss: Callable[[], Tensor]) -> Any:
    """Its operators."""
    step(model, loss)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step(model, loss)
    return profile.key_averages()


def of_operator(event: Any) -> list[str]:
    """Time and calls."""
    return ["", ""] if event is None else [seconds(event.self_cpu_time_total / 1e6), str(event.count)]


def step(model: nn.Module, loss: Callable[[], Tensor]) -> Tensor:
    """Gradients from nothing; returns the loss."""
    model.zero_grad()
    value = loss()
    value.backward()
    return value.detach()


def peak(loss: Callable[[], Tensor], device: torch.device) -> int:
    """Bytes allocated at the fullest moment of forward and backward, by a model whose gradients are there already."""
    loss().backward()
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        loss().backward()
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        loss().backward()
    now = highest = 0
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest
