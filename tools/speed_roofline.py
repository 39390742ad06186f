"""How near each part of a training step comes to what the machine can do: its operations, its bytes, and both rates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from speed_common import REGIONS, VOCABULARY, Setting, make_decoder, make_regions, say, seconds, table, wait
from torch import Tensor
from torch.nn import functional

from caption.attention import ScoredAttention
from caption.kernels.additive_energies import TILE

IMAGES, STEPS, WIDTH = 32, 20, 512
CALLS = 5  # of a part in one measurement
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
    """How often in the step."""
    forward: Callable[[], Tensor]
    learned: list[Tensor]
    """What gets gradients."""
    flop: float
    """Of the forward pass."""
    bytes: float
    """That it reads and writes at least, if all else stays in the cache."""
    tanhs: float = 0.0
    backward: float = 1.0
    """Operations of the backward pass, in those of the forward pass."""


def measure(setting: Setting) -> list[str]:
    """Markdown lines."""
    say("rates")
    rates = measure_rates(setting)
    rows = [row for region_size in (2048, 512) for row in measure_parts(region_size, setting, rates)]
    return [
        "## Roofline",
        "",
        f"The parts of a training step of {IMAGES} images and as many captions of {STEPS} words, each by itself, in",
        "float32: L 196, V 9,500, embedding, LSTM and attention 512. At its best, this machine does",
        f"**{rates.product / 1e9:.0f} GFLOP/s** in a large matrix product, reads **{rates.read / 1e9:.0f} GB/s**",
        "of a tensor as large as the regions (D 2048), and takes",
        f"**{1e9 / rates.tanh:.2f} ns** for the tanh of a number in its cache. *Least time*: the longest of what a",
        "part's operations, bytes and tanhs would take at these rates, if nothing else were to do; *share*: least time",
        "by time, above 100 % where a part finds in the cache what is counted as read. *times*: how often in the",
        "step; all other figures are for one. The scores' other passes over their tiles (sum, product with v, sums of",
        "the gradients) are not counted, and take longer than the tanh.",
        "",
        *table(HEAD, rows),
    ]


def measure_rates(setting: Setting) -> Rates:
    """Of this machine, now."""
    device = setting.device
    size = 2048
    left, right = torch.randn(2, size, size, device=device)
    regions = torch.randn(IMAGES * REGIONS, 2048, device=device)
    one = torch.ones(2048, device=device)
    tile = torch.randn(TILE, device=device)
    return Rates(
        2 * size**3 / clock(lambda: left @ right, setting, best=True),
        regions.numel() * 4 / clock(lambda: regions @ one, setting, best=True),
        tile.numel() * 16 / clock(lambda: [tile.tanh_() for _ in range(16)], setting, best=True),
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

        for name, run, flop in (
            ("forward", part.forward, part.flop),
            ("backward", backward, part.flop * part.backward),
        ):
            took = clock(run, setting)
            least = max(flop / rates.product, part.bytes / rates.read, part.tanhs / rates.tanh)
            figures = [seconds(took), f"{flop / 1e9:.2f}", f"{part.bytes / 1e6:.0f}", million(part.tanhs)]
            rows.append(
                [
                    str(region_size),
                    part.name,
                    str(part.times),
                    name,
                    *figures,
                    seconds(least),
                    f"{least / took:.0%}",
                ]
            )
    return rows


def parts(region_size: int, device: torch.device) -> list[Part]:
    """By the decoder's own modules."""
    decoder = make_decoder(region_size, device)
    attention = decoder.attention
    assert isinstance(attention, ScoredAttention)
    score = attention.score
    regions = make_regions(IMAGES, region_size, device)
    keys = score.keys(regions).detach().requires_grad_()
    query = torch.randn(IMAGES, 1, WIDTH, device=device, requires_grad=True)
    weights = torch.rand(IMAGES, 1, REGIONS, device=device, requires_grad=True)
    joined = torch.randn(IMAGES, 1, WIDTH + region_size, device=device, requires_grad=True)
    gates = decoder.gates_from_state.weight.detach()  # its gradient is one product over all steps
    words = IMAGES * STEPS
    read = [
        torch.randn(words, size, device=device, requires_grad=True) for size in (WIDTH, WIDTH, region_size)
    ]
    numbers = IMAGES * REGIONS
    of_readout = WIDTH * WIDTH + region_size * WIDTH + WIDTH * VOCABULARY
    return [
        Part(
            "project the regions",
            1,
            lambda: score.keys(regions),
            [score.region.weight],
            2 * numbers * region_size * WIDTH,
            4 * (numbers * region_size + numbers * WIDTH + region_size * WIDTH),
        ),
        Part(
            "scores",
            STEPS,
            lambda: score(query, keys),
            [query, keys, score.energy.weight],
            2 * IMAGES * WIDTH * WIDTH + 4 * numbers * WIDTH,
            4 * numbers * WIDTH,
            numbers * WIDTH,
        ),
        Part(
            "context",
            STEPS,
            lambda: weights @ regions,
            [weights],
            2 * numbers * region_size,
            4 * numbers * region_size,
        ),
        Part(
            "LSTM's product",
            STEPS,
            lambda: functional.linear(joined, gates),
            [joined],
            2 * IMAGES * gates.numel(),
            4 * gates.numel(),
        ),
        Part(
            "read-out",
            1,
            lambda: decoder.readout(*read),
            [*read, *decoder.readout.parameters()],
            2 * words * of_readout,
            4 * (words * VOCABULARY + of_readout),
            backward=2.0,
        ),
    ]


def clock(run: Callable[[], object], setting: Setting, best: bool = False) -> float:
    """Seconds of a call: the median, or the least."""
    run()
    times = []
    for _ in range(setting.rounds):
        wait(setting.device)
        started = time.perf_counter()
        for _ in range(CALLS):
            run()
        wait(setting.device)
        times.append((time.perf_counter() - started) / CALLS)
    return min(times) if best else statistics.median(times)


def million(count: float) -> str:
    """A count for people."""
    return f"{count / 1e6:.1f} M" if count else ""
