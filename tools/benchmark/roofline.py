"""How close each part of a training step comes to what the machine can do: operations, bytes, and both rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.benchmark import Measurement, Timer
from torch.utils.flop_counter import FlopCounterMode

from caption.kernels.additive_energies import TILE, additive_energies
from tools.benchmark import core
from tools.benchmark.harness import Setting, say, seconds
from tools.documents import table

STEPS, WIDTH = 20, 512
HEAD = ["D", "part", "times", "pass", "time", "GFLOP", "MB", "tanh", "least time", "share"]


class Rates(NamedTuple):
    """What the machine does in a second."""

    product: float
    """Operations of a large matrix product."""
    read: float
    """Bytes read of a tensor as large as the regions."""
    tanh: float
    """Numbers whose tanh is taken in place, in a tile that fits the cache."""


class Part(NamedTuple):
    """A part of a training step."""

    name: str
    times: int
    """How often it runs in the step."""
    forward: Callable[[], Tensor]
    learned: list[Tensor]
    """The tensors that get gradients."""
    moved: int
    """Numbers that it reads and writes at least, if all else stays in the cache."""
    tanhs: int = 0


def roofline(setting: Setting) -> str:
    """The rates of the machine, and the parts of a step beside them."""
    say("rates")
    rates = measure_rates(setting)
    rows = [row for region_size in (2048, 512) for row in measure_parts(region_size, setting, rates)]
    return (
        f"At its best, this machine does **{rates.product / 1e9:.0f} GFLOP/s** in a large matrix product, reads\n"
        f"**{rates.read / 1e9:.0f} GB/s** of a tensor as large as the regions (D 2048), and takes\n"
        f"**{1e9 / rates.tanh:.2f} ns** for the tanh of a number in its cache.\n\n{table(HEAD, rows)}"
    )


def measure_rates(setting: Setting) -> Rates:
    """The rates of this machine, now."""
    device, size = setting.device, 2048
    left, right = torch.randn(2, size, size, device=device)
    regions = torch.randn(core.IMAGES * core.REGIONS, 2048, device=device)
    one, tile = torch.ones(2048, device=device), torch.randn(TILE, device=device)
    return Rates(
        2 * size**3 / min(timed(lambda: left @ right, setting).times),
        regions.numel() * 4 / min(timed(lambda: regions @ one, setting).times),
        tile.numel() / min(timed(tile.tanh_, setting).times),
    )


def measure_parts(region_size: int, setting: Setting, rates: Rates) -> list[list[str]]:
    """Two rows for each part."""
    rows = []
    for part in parts(region_size, setting.device):
        say(f"{part.name}, D {region_size}")
        output = part.forward()
        grad = torch.randn_like(output)

        def backward(part: Part = part, output: Tensor = output, grad: Tensor = grad) -> object:
            return torch.autograd.grad(output, part.learned, grad, retain_graph=True)

        for name, run in (("forward", part.forward), ("backward", backward)):
            with FlopCounterMode(display=False) as counter:
                run()
            taken, flop = timed(run, setting).median, counter.get_total_flops()
            least = max(flop / rates.product, 4 * part.moved / rates.read, part.tanhs / rates.tanh)
            row = [str(region_size), part.name, str(part.times), name, seconds(taken), f"{flop / 1e9:.2f}"]
            row += [f"{4 * part.moved / 1e6:.0f}", f"{part.tanhs / 1e6:.1f} M" if part.tanhs else ""]
            rows.append([*row, seconds(least), f"{least / taken:.0%}"])
    return rows


def parts(region_size: int, device: torch.device) -> list[Part]:
    """The parts, run by the decoder's own modules."""

    def learned(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, requires_grad=True)

    def scores() -> Tensor:
        return additive_energies(score.query(query), keys, score.energy.weight[0], "tanh")

    decoder = core.make_decoder(region_size, device)
    score, readout = decoder.attention.score, decoder.readout
    vectors = core.make_vectors(core.IMAGES, region_size, device)
    keys = score.region(vectors).detach().requires_grad_()
    query, weights = learned(core.IMAGES, 1, WIDTH), learned(core.IMAGES, 1, core.REGIONS)
    joined = learned(core.IMAGES, 1, WIDTH + region_size)
    gates = decoder.gates_from_state.weight.detach()  # its gradient is one product over all steps
    words, numbers = core.IMAGES * STEPS, core.IMAGES * core.REGIONS
    read = [learned(words, size) for size in (WIDTH, WIDTH, region_size)]
    moved = [region_size * numbers, WIDTH * numbers, region_size * WIDTH]  # regions, keys, projection
    written = words * core.VOCABULARY + sum(p.numel() for p in readout.parameters())
    project, of_scores = [score.region.weight], [query, keys, score.energy.weight]
    return [
        Part("project the regions", 1, lambda: score.region(vectors), project, sum(moved)),
        Part("scores", STEPS, scores, of_scores, moved[1], moved[1]),
        Part("context", STEPS, lambda: weights @ vectors, [weights], moved[0]),
        Part("LSTM's product", STEPS, lambda: functional.linear(joined, gates), [joined], gates.numel()),
        Part("read-out", 1, lambda: readout(*read), [*read, *readout.parameters()], written),
    ]


def timed(run: Callable[[], object], setting: Setting) -> Measurement:
    """Times of a call, taken for a fifth of a second."""
    return Timer("run()", globals={"run": run}, num_threads=setting.threads).blocked_autorange()
