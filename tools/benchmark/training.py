"""A training step of the decoder: ours and the textbook's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption import textbook
from caption.core.runtime.peak_memory import allocated_peak
from caption.kernels import accelerate, graphs
from tools.benchmark import core
from tools.benchmark.harness import Setting, say, take_turns
from tools.benchmark.textbook import gradients, textbook_of
from tools.documents import table


class Form(NamedTuple):
    """A model and its loss of a batch."""

    model: nn.Module
    compute: Callable[[], Tensor]
    low: bool = False
    """In bf16 where autocast allows it."""

    def loss(self) -> Tensor:
        device = next(self.model.parameters()).device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.low):
            return self.compute()

    def step(self) -> Tensor:
        """Forward and backward; returns the loss."""
        return core.step(self.model, self.loss)


class Batch:
    """A captioner, the textbook form of its decoder, and a batch for both, with one caption of each image."""

    def __init__(self, region_size: int, device: torch.device, images: int = core.IMAGES) -> None:
        self.device = device
        self.captioner = core.make_captioner(region_size, device)
        self.textbook = textbook_of(self.captioner.decoder)
        self.vectors = core.make_vectors(images, region_size, device)
        self.captions = core.make_captions(images, device)

    def captioner_form(self, low: bool = False, **options: bool) -> Form:
        """The captioner's decoder, or that of a copy with other options of `accelerate`."""
        captioner = self.captioner
        if options:
            captioner = copy.deepcopy(captioner)
            accelerate(captioner, self.device, **options)
        compute = partial(core.caption_loss, captioner, self.vectors, self.captions)
        return Form(captioner.decoder, compute, low)

    def textbook_form(self, low: bool = False) -> Form:
        """The textbook's decoder."""
        return Form(self.textbook, self._textbook_loss, low)

    def _textbook_loss(self) -> Tensor:
        inputs, targets, _ = (tensor[:, 0] for tensor in self.captions)
        log_p, alpha, _ = self.textbook(self.vectors, inputs)
        return textbook.soft_loss(log_p, alpha, targets)


class Measured(NamedTuple):
    """One form of a training step. Differences are relative to the first form, and "" for that form itself."""

    times: list[str]
    """Median, and times as fast."""
    memory: str
    loss: str
    gradients: str
    """‖difference‖ / ‖gradient‖ of the weight where it is largest."""


def measure_forms(
    forms: dict[str, Form],
    setting: Setting,
    compared: Callable[[nn.Module], dict[str, Tensor]] = gradients,
) -> dict[str, Measured]:
    """Measure forms, the first of which is the reference; `compared` gives a form's gradients by common names."""
    reference = next(iter(forms))
    expected, true = float(forms[reference].step()), compared(forms[reference].model)
    times = take_turns({name: form.step for name, form in forms.items()}, setting)
    measured = {}
    for name, form in forms.items():
        loss, furthest = "", ""
        if name != reference:
            loss = f"{abs(float(form.step()) - expected) / expected:.0e}"
            actual = compared(form.model)
            apart = (float((actual[key] - of).norm() / of.norm()) for key, of in true.items())
            furthest = f"{max(apart, default=0.0):.0e}"
        memory = ""  # a graph's is allocated when it is recorded
        if not isinstance(form.model, graphs.GraphedUnroll):
            # The gradients are allocated already and are not counted.
            bytes = allocated_peak(lambda form=form: form.loss().backward(), setting.device)
            memory = f"{bytes / 1e6:.0f} MB"
        assert not graphs.took_plain(form.model), f"{name} has fallen back to the plain form, see the log"
        measured[name] = Measured(times.row(name, reference), memory, loss, furthest)
    return measured


def training(setting: Setting) -> str:
    """A row for each size and form."""
    rows = []
    for region_size, images in product((2048, 512), batch_sizes(setting)):
        say(f"training step, D {region_size}, {images} images")
        batch = Batch(region_size, setting.device, images)
        for name, form in measure_forms(make_forms(batch), setting).items():
            differences = [form.memory, form.loss, form.gradients]
            rows.append([str(region_size), str(images), name, *form.times, *differences])
    return table(["D", "B", "form", "time", "times as fast", "peak memory", "loss", "gradients"], rows)


def batch_sizes(setting: Setting) -> tuple[int, ...]:
    """The numbers of images of which a step is measured; on a CPU, four times as many take four times as long."""
    return (core.IMAGES,) if setting.device.type == "cpu" or setting.quick else (core.IMAGES, 4 * core.IMAGES)


def make_forms(batch: Batch) -> dict[str, Form]:
    """The forms of the training step by name; compiled only on a GPU."""
    forms = {
        "textbook, float32": batch.textbook_form(),
        "ours, float32": batch.captioner_form(),
        "ours, bf16-mixed": batch.captioner_form(low=True),
    }
    if batch.device.type == "cuda":
        forms |= {
            "textbook, bf16-mixed": batch.textbook_form(low=True),
            "ours, bf16-mixed, compiled": batch.captioner_form(low=True, compile=True),
            "ours, float32, graphs": batch.captioner_form(graphs=True),
            "ours, bf16-mixed, graphs": batch.captioner_form(low=True, graphs=True),
        }
    return forms
