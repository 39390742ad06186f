"""What all measurements share: taking turns, processes of their own, peak memory, and how numbers are written."""

from __future__ import annotations

import importlib
import multiprocessing
import random
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:  # only: processes that need no torch measure their memory with this module
    import torch

Result = TypeVar("Result")


class Setting(NamedTuple):
    """How the benchmark runs."""

    device: torch.device
    quick: bool
    rounds: int
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


def take_turns(
    contestants: dict[Any, Callable[[], Any]], setting: Setting, rounds: int | None = None
) -> Times:
    """Run each contestant once to warm up, then all in turns, so that other work on the machine slows all of them."""
    from tools.benchmark.core import wait

    def measured(run: Callable[[], Any]) -> tuple[float, float]:
        wait(setting.device)
        clock, work = time.perf_counter(), time.process_time()
        run()
        wait(setting.device)
        return time.perf_counter() - clock, time.process_time() - work

    first = {name: measured(run)[0] for name, run in contestants.items()}
    times = Times({name: [] for name in contestants}, {name: [] for name in contestants}, first)
    for _ in range(rounds or setting.rounds):
        for name, run in contestants.items():
            clock, work = measured(run)
            times.seconds[name].append(clock)
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


def in_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function of a module in a new process, so that neither its memory nor its settings reach the next."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def measure_section(module: str, name: str, setting: Setting, threads: int) -> str:
    """Call the function of a section in this process; it returns Markdown."""
    import torch

    torch.set_num_threads(threads)
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


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)
