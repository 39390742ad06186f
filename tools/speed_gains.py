"""From the textbook's training step to ours, one habit at a time, with profiles before and after the largest gains."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import torch
from speed_common import Setting, make_captions, make_decoder, make_regions, say, seconds, table, take_turns
from speed_training import IMAGES, LONGEST, SHORTEST, peak, profile_step, step
from textbook import Textbook, textbook_of
from torch import Tensor, nn

from caption.objectives import CrossEntropy
from caption.objectives.base import Captions

REGION_SIZE = 2048
OPERATORS = 5
Steps = Iterator[tuple[int, int, Tensor, Tensor, Tensor, Tensor]]


class ProjectedOnce(Textbook):
    """The textbook, but the regions are projected once for all steps."""

    def forward(self, regions: Tensor, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lengths, order = lengths.sort(descending=True)
        logits = regions.new_zeros(len(words), int(lengths[0]), self.to_words.out_features)
        alphas = regions.new_zeros(len(words), int(lengths[0]), regions.shape[1])
        for t, n, embedded, context, hidden, weights in self.steps(regions[order], words[order], lengths):
            logits[:n, t], alphas[:n, t] = self.read_out(embedded, context, hidden), weights
        return logits, alphas, order

    def steps(self, regions: Tensor, words: Tensor, lengths: Tensor) -> Steps:
        """t, the captions that run, and for these Ey[t-1], z[t], h[t] and α[t]; sorted by length."""
        hidden, cell = self.start(regions)
        keys = self.region(regions)
        for t in range(int(lengths[0])):
            n = int((lengths > t).sum())
            hidden, cell = hidden[:n], cell[:n]
            joined = torch.tanh(keys[:n] + self.query(hidden).unsqueeze(1))
            weights = self.energy(joined).squeeze(2).softmax(1)
            context = torch.sigmoid(self.gate(hidden)) * self.read(regions[:n], weights)
            embedded = self.embed(words[:n, t])
            hidden, cell = self.cell(torch.cat([embedded, context], 1), (hidden, cell))
            yield t, n, embedded, context, hidden, weights

    def read(self, regions: Tensor, weights: Tensor) -> Tensor:
        """Regions (n, L, D), α (n, L) -> their average (n, D)."""
        return (regions * weights.unsqueeze(2)).sum(1)

    def read_out(self, embedded: Tensor, context: Tensor, hidden: Tensor) -> Tensor:
        """Logits (N, V)."""
        return self.to_words(embedded + self.from_hidden(hidden) + self.from_context(context))


class ReadOnce(ProjectedOnce):
    """And the output layer runs once, behind the loop."""

    def forward(self, regions: Tensor, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lengths, order = lengths.sort(descending=True)
        taken = list(self.steps(regions[order], words[order], lengths))
        read = self.read_out(*(torch.cat([one[place] for one in taken]) for place in (2, 3, 4)))
        real = torch.arange(len(taken), device=words.device) < lengths[:, None]
        logits = regions.new_zeros(len(taken), len(words), self.to_words.out_features)
        alphas = regions.new_zeros(len(taken), len(words), regions.shape[1])
        logits[real.T], alphas[real.T] = read, torch.cat([one[5] for one in taken])
        return logits.transpose(0, 1), alphas.transpose(0, 1), order


class ReadAsProduct(ReadOnce):
    """And the context is a matrix product, which makes no tensor as large as the regions."""

    def read(self, regions: Tensor, weights: Tensor) -> Tensor:
        return (weights.unsqueeze(1) @ regions).squeeze(1)


RUNGS: dict[str, type[Textbook]] = {
    "textbook": Textbook,
    "regions projected once": ProjectedOnce,
    "output layer behind the loop": ReadOnce,
    "context as a matrix product": ReadAsProduct,
}
LAST = "ours: energies in tiles, gradients in one place"
Form = tuple[nn.Module, Callable[[], Tensor]]


def make_rungs(region_size: int, device: torch.device) -> dict[str, Form]:
    """Model and loss by name, each with one habit less than the one before; the same weights and data for all."""
    decoder, objective = make_decoder(region_size, device), CrossEntropy()
    textbook = textbook_of(decoder)
    regions = make_regions(IMAGES, region_size, device)
    captions = Captions(*make_captions(IMAGES, 1, SHORTEST, LONGEST, device))
    words, targets, lengths = (tensor[:, 0] for tensor in captions)
    rungs: dict[str, Form] = {}
    for name, kind in RUNGS.items():
        model = copy.deepcopy(textbook)
        model.__class__ = kind
        rungs[name] = (model, partial(model.loss, regions, words, targets, lengths))
    rungs[LAST] = (decoder, lambda: objective(decoder, decoder.project(regions), captions).value)
    return rungs


def measure(setting: Setting) -> list[str]:
    """Markdown lines."""
    say("one habit at a time")
    rungs = make_rungs(REGION_SIZE, setting.device)
    losses = {name: float(step(*rung)) for name, rung in rungs.items()}
    expected = losses["textbook"]
    times = take_turns({name: partial(step, *rung) for name, rung in rungs.items()}, setting)
    names = list(rungs)
    saved = {name: times.median(before) - times.median(name) for before, name in pairwise(names)}
    rows = [
        [
            name,
            *times.row(name, "textbook"),
            seconds(saved[name]) if saved.get(name, 0) > 0 else "",
            f"{peak(rungs[name][1], setting.device) / 1e6:.0f} MB",
            f"{abs(losses[name] - expected) / expected:.0e}",
        ]
        for name in names
    ]
    largest = sorted(saved, key=lambda name: -saved[name])[:2]
    return [
        "## Where the gains come from",
        "",
        f"The training step above, D {REGION_SIZE}, in float32: each line does one thing differently from the one",
        "before. *Saved*: by how much the median falls. *Loss*: relative difference from the textbook's.",
        "",
        *table(["form", "time", "times as fast", "saved", "peak memory", "loss"], rows),
        *(line for name in largest for line in profiles(names[names.index(name) - 1], name, rungs)),
    ]


def profiles(before: str, after: str, rungs: dict[str, Form]) -> list[str]:
    """The operators that take longest before and after, by their own time."""
    columns = []
    for name in (before, after):
        events = sorted(profile_step(*rungs[name]), key=lambda event: -event.self_cpu_time_total)[:OPERATORS]
        columns.append([f"`{e.key}` {seconds(e.self_cpu_time_total / 1e6)} ({e.count})" for e in events])
    return [
        "",
        f"Profile before and after *{after}*: operators by their own time (calls).",
        "",
        *table([f"before: {before}", f"after: {after}"], [list(row) for row in zip(*columns, strict=True)]),
    ]
