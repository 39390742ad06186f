"""What all measurements share: taking turns, processes of their own, peak memory, and how numbers are written."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # only: processes that need no torch measure their memory with this module
    import torch

HERE = Path(__file__).resolve().parents[2]
"""This checkout."""


class Setting(NamedTuple):
    """How the benchmark runs."""

    device: torch.device
    quick: bool
    rounds: int
    threads: int = 1
    captions: Path | None = None
    """A caption file to score; None = made up."""


class Times(NamedTuple):
    """Seconds of each contestant in each round."""

    seconds: dict[str, list[float]]
    work: dict[str, list[float]]
    """Of the processors' time."""
    first: dict[str, float]
    """The run before the rounds, which loads and sets up what is needed."""

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def row(self, name: str, reference: str) -> list[str]:
        """Median time, and how many times as fast as the reference: round by round, median and range."""
        if name == reference:
            return [seconds(self.median(name)), "1"]
        pairs = zip(self.seconds[reference], self.seconds[name], strict=True)
        faster = spread((theirs / own for theirs, own in pairs), "{:.1f}", bold=True)
        return [seconds(self.median(name)), faster]


def clock(run: Callable[[], Any], device: torch.device) -> tuple[float, float]:
    """Seconds of a call by the clock, and of the processors' time."""
    wait(device)
    started, work = time.perf_counter(), time.process_time()
    run()
    wait(device)
    return time.perf_counter() - started, time.process_time() - work


def wait(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def take_turns(
    contestants: dict[Any, Callable[[], Any]], setting: Setting, rounds: int | None = None
) -> Times:
    """Run each contestant once to warm up, then all in turns, so that other work on the machine slows all of them."""
    first = {name: clock(run, setting.device)[0] for name, run in contestants.items()}
    times = Times({name: [] for name in contestants}, {name: [] for name in contestants}, first)
    for _ in range(rounds or setting.rounds):
        for name, run in contestants.items():
            taken, work = clock(run, setting.device)
            times.seconds[name].append(taken)
            times.work[name].append(work)
    return times


def made_up(count: int, seed: int = 0, parts: tuple[int, int] = (2, 2), common: int = 1000) -> Iterator[str]:
    """Captions whose word frequencies fall as those of real words do.

    Args:
        count: number of captions.
        seed: of the random numbers.
        parts: smallest and largest number of parts, of four words each.
        common: different words.
    """
    draw = random.Random(seed)
    words = draw.choices(range(common), [1 / (rank + 5) for rank in range(common)], k=80_000)
    pieces = [" ".join(f"w{word}" for word in words[i : i + 4]) for i in range(0, len(words), 4)]
    for _ in range(count):
        yield " ".join(draw.choices(pieces, k=draw.randint(*parts)))


def new_process(checkout: Path = HERE, threads: int = 1) -> ProcessPoolExecutor:
    """A new process with the package `caption` of a checkout; it shares no memory or setting with this one."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, _use_checkout, (str(checkout.resolve()), threads))


def _use_checkout(checkout: str, threads: int) -> None:
    os.environ.update(
        PYTHONPATH=checkout, OMP_NUM_THREADS=str(threads)
    )  # for torch, imported later, and its processes
    os.chdir(checkout)
    sys.path.insert(0, checkout)


def measure_section(module: str, name: str, setting: Setting) -> str:
    """Call the function of a section, in a new process; it returns Markdown."""
    text: str = getattr(importlib.import_module(f"tools.benchmark.{module}"), name)(setting)
    return text


def resident_peak() -> int:
    """The most bytes that this process has held in physical memory.

    On Linux, `resource` also counts the process that started this one, so the kernel's own record is read.
    """
    try:
        return 1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[0])
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def seconds(value: float) -> str:
    """A time, which may be negative, in s or ms."""
    size = f"{abs(value):.2f} s" if abs(value) >= 1 else f"{abs(value) * 1e3:.3g} ms"
    return f"−{size}" if value < 0 else size


def spread(values: Any, form: str | Callable[[float], str], bold: bool = False) -> str:
    """Median, smallest and largest: "2.0 (1.0 to 3.0)"; only the value if there is just one."""
    found = sorted(values)
    write = form.format if isinstance(form, str) else form
    low, middle, high = map(write, (found[0], statistics.median(found), found[-1]))
    middle = f"**{middle}**" if bold else middle
    return middle if len(found) == 1 else f"{middle} ({low} to {high})"


def ratio(one: list[float], other: list[float], bold: bool = False) -> str:
    """Round by round, in per cent."""
    return spread((a / b for a, b in zip(one, other, strict=True)), "{:.0%}", bold)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)
