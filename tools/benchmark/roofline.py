"""The least time that a training step could take on this machine: operations, bytes and tanhs at its best rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.utils.benchmark import Timer

from caption.decoders import ShowAttendAndTellDecoder
from caption.kernels.linear import linear
from caption.objectives import CaptionBatch
from tools.benchmark import core
from tools.benchmark.harness import Setting

PASSES = 3
"""A product forward, and two for its gradients."""
IN_CACHE = 1 << 17


class Rates(NamedTuple):
    """What the machine does in a second."""

    product: float
    """Operations of a large matrix product in float32."""
    read: float
    """Bytes read of a tensor as large as the regions (D 2048)."""
    divided: float
    """Numbers of a tile in the cache whose reciprocal is taken in place: tanh needs at least one."""

    def __str__(self) -> str:
        return (
            f"{self.product / 1e9:.0f} GFLOP/s in a large matrix product, {self.read / 1e9:.0f} GB/s reading "
            f"regions, {1e9 / self.divided:.2f} ns for a reciprocal in the cache"
        )


def measure_rates(setting: Setting) -> Rates:
    """The rates of this machine, now."""
    device, size = setting.device, 2048
    left, right = torch.randn(2, size, size, device=device)
    regions = torch.randn(core.IMAGES * core.REGIONS, 2048, device=device)
    one, tile = torch.ones(2048, device=device), torch.rand(IN_CACHE, device=device) + 1
    return Rates(
        2 * size**3 / fastest(lambda: linear(left, right), setting),
        regions.nbytes / fastest(lambda: regions @ one, setting),
        tile.numel() / fastest(tile.reciprocal_, setting),
    )


def fastest(run: Callable[[], object], setting: Setting) -> float:
    """Seconds of the fastest of several calls, in half a second."""
    timer = Timer("run()", globals={"run": run}, num_threads=setting.threads)
    return min(timer.blocked_autorange(min_run_time=0.5).times)


def least_seconds(
    decoder: ShowAttendAndTellDecoder, captions: CaptionBatch, regions: int, rates: Rates
) -> float:
    """Of forward and backward: each product's operations; regions and keys read once a step and pass.

    The regions have no gradient. Words, sums and the read-out's softmax are not counted.
    """
    images, words = len(captions.words), int(captions.lengths.sum())
    score = decoder.attention.score
    size, width = score.region.weight.shape[::-1]
    once = {id(p) for part in (score.region, score.energy, decoder.initial) for p in part.parameters()}
    once |= {id(p) for p in decoder.embed.parameters()}  # looked up
    for_words = sum(p.numel() for p in decoder.parameters() if p.dim() == 2 and id(p) not in once)
    operations = 2 * PASSES * words * for_words + 2 * 2 * images * regions * size * width
    context = 4 * size / rates.read
    energies = width * max(4 / rates.read, 1 / rates.divided if score.activation == "tanh" else 0)
    return operations / rates.product + 2 * words * regions * (context + energies)
