"""A training step of the decoder, ours and the textbook's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from speed_common import (
    Setting,
    make_captions,
    make_decoder,
    make_regions,
    say,
    table,
    take_turns,
)
from textbook import gradients, textbook_of
from torch import Tensor, nn

from caption.objectives import CrossEntropy
from caption.objectives.base import Captions

IMAGES, SHORTEST, LONGEST = 32, 15, 25
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
        f"Forward and backward: {IMAGES} images with one caption of {SHORTEST} to {LONGEST} words each, L 196, V 9,500;",
        "embedding, LSTM and attention 512; cross-entropy and doubly stochastic term; regions without gradient. Gradients of",
        "all weights. *Loss* and *gradients*: the largest relative difference from the textbook's, of the gradients that of",
        "the weight where it is largest (‖difference‖ / ‖gradient‖). *Peak memory*: the most allocated at a time beyond",
        "weights, gradients and input.",
        "",
        *table(HEAD, rows),
    ]


def compare(region_size: int, setting: Setting) -> list[list[str]]:
    """A row for each form."""
    device = setting.device
    decoder, objective = make_decoder(region_size, device), CrossEntropy()
    textbook = textbook_of(decoder)
    regions = make_regions(IMAGES, region_size, device)
    captions = Captions(*make_captions(IMAGES, 1, SHORTEST, LONGEST, device))
    words, targets, lengths = (tensor[:, 0] for tensor in captions)

    def ours(low: bool = False) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=low):
            return objective(decoder, decoder.project(regions), captions).value

    forms: dict[str, tuple[nn.Module, Callable[[], Tensor]]] = {
        "textbook, float32": (textbook, lambda: textbook.loss(regions, words, targets, lengths)),
        "ours, float32": (decoder, ours),
        "ours, bf16-mixed": (decoder, lambda: ours(low=True)),
    }
    reference, *others = forms
    expected = step(*forms[reference])
    differences = {reference: ["", ""]}
    for name in others:
        loss = float(abs(step(*forms[name]) - expected) / expected)
        furthest = max(float((a - b).norm() / b.norm()) for _, a, b in gradients(decoder, textbook))
        differences[name] = [f"{loss:.0e}", f"{furthest:.0e}"]
    memory = {name: f"{peak(loss, device) / 1e6:.0f} MB" for name, (_, loss) in forms.items()}
    times = take_turns({name: partial(step, *form) for name, form in forms.items()}, setting)
    return [
        [str(region_size), name, *times.row(name, reference), memory[name], *differences[name]] for name in forms
    ]


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
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        loss().backward()
    now = highest = 0
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest
