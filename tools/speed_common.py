"""What the parts of `tools/benchmark.py` share: the decoder, its data, and a clock that takes turns."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.decoders import DeepOutput, Gate, InitialState, LSTMDecoder
from caption.text.vocabulary import PAD, START

VOCABULARY, REGIONS = 9500, 196


class Setting(NamedTuple):
    """How a benchmark runs."""

    device: torch.device
    quick: bool
    rounds: int


class Times(NamedTuple):
    """Seconds of each contestant in each round."""

    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratios(self, name: str, reference: str) -> list[float]:
        """How many times as fast as the reference, round by round, sorted."""
        pairs = zip(self.seconds[reference], self.seconds[name], strict=True)
        return sorted(theirs / own for theirs, own in pairs)

    def row(self, name: str, reference: str) -> list[str]:
        """Median time, and the median ratio with its smallest and largest."""
        median, ratios = self.median(name), self.ratios(name, reference)
        if name == reference:
            return [seconds(median), "1"]
        return [
            seconds(median),
            f"**{statistics.median(ratios):.1f}** ({ratios[0]:.1f} to {ratios[-1]:.1f})",
        ]


def take_turns(
    contestants: dict[str, Callable[[], Any]], setting: Setting, rounds: int | None = None
) -> Times:
    """Run each once to warm up, then all in turns, so that a busy machine is busy for all of them."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    for _ in range(rounds or setting.rounds):
        for name, run in contestants.items():
            wait(setting.device)
            started = time.perf_counter()
            run()
            wait(setting.device)
            times[name].append(time.perf_counter() - started)
    return Times(times)


def wait(device: torch.device) -> None:
    """Until the device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def make_decoder(region_size: int, device: torch.device) -> LSTMDecoder:
    """The paper's decoder, embedding, LSTM and attention 512 wide; without dropout, so that results can be compared."""
    torch.manual_seed(0)
    decoder = LSTMDecoder(
        ScoredAttention(AdditiveScore(512), Softmax()),
        initial=InitialState(dropout=0.0),
        gate=Gate(),
        readout=DeepOutput(dropout=0.0),
    )
    decoder.build(region_size, VOCABULARY, padding=PAD, start=START)
    return decoder.to(device)


def make_regions(images: int, region_size: int, device: torch.device, regions: int = REGIONS) -> Tensor:
    """(B, L, D): positive and sparse, as behind a ReLU."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(images, regions, region_size, generator=generator).relu().to(device)


def make_captions(
    images: int, captions: int, shortest: int, longest: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Words fed in and target words (B, K, T), and lengths (B, K), evenly spread; one caption is the longest."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(shortest, longest + 1, (images, captions), generator=generator)
    lengths[0, 0] = longest
    words = torch.randint(4, VOCABULARY, (images, captions, longest + 1), generator=generator)
    words[..., 0] = START
    real = torch.arange(longest) < lengths[..., None]
    return (words[..., :-1] * real).to(device), (words[..., 1:] * real).to(device), lengths.to(device)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def seconds(value: float) -> str:
    """A time for people."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)
