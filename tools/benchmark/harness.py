"""Common to all measurements: taking turns, processes of their own, and the format of numbers."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

ROOT = Path(__file__).resolve().parents[2]


class Setting(NamedTuple):
    """How the benchmark runs."""

    device: torch.device
    quick: bool
    rounds: int
    threads: int = 1
    sgrvinod: Path | None = None
    """A clone of its repository."""
    json: Path | None = None
    """A file for the numbers of the sections forms and parts."""


class Times(NamedTuple):
    """Seconds of each contestant in each round."""

    seconds: dict[Any, list[float]]

    def median(self, name: Any) -> float:
        return statistics.median(self.seconds[name])

    def row(self, name: Any, reference: Any) -> list[str]:
        """Median time, and how many times as fast as the reference: round by round, median and range."""
        if name == reference:
            return [seconds(self.median(name)), "1"]
        pairs = zip(self.seconds[reference], self.seconds[name], strict=True)
        faster = spread((base / time for base, time in pairs), "{:.1f}", bold=True)
        return [seconds(self.median(name)), faster]


def clock(run: Callable[[], Any], device: torch.device) -> float:
    """Seconds of a call."""
    wait(device)
    started = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - started


def wait(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def take_turns(contestants: dict[Any, Callable[[], Any]], setting: Setting) -> Times:
    """Run each contestant once to warm up, then all in turns, so that other work on the machine slows all of them."""
    for run in contestants.values():
        run()
    times = Times({name: [] for name in contestants})
    for _ in range(setting.rounds):
        for name, run in contestants.items():
            times.seconds[name].append(clock(run, setting.device))
    return times


def new_process(threads: int = 1) -> ProcessPoolExecutor:
    """A new process, which shares neither memory nor settings with this one."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, _prepare, (threads,))


def _prepare(threads: int) -> None:
    # For processes that this one starts.
    os.environ.update(PYTHONPATH=str(ROOT), OMP_NUM_THREADS=str(threads))
    torch.set_num_threads(threads)


def measure_section(name: str, setting: Setting) -> str:
    """Call the function of a section, in a new process; it returns Markdown."""
    text: str = getattr(importlib.import_module(f"tools.benchmark.{name}"), name)(setting)
    return text


def seconds(value: float) -> str:
    """A time, which may be negative, in s or ms."""
    size = f"{abs(value):.2f} s" if abs(value) >= 1 else f"{abs(value) * 1e3:.3g} ms"
    return f"−{size}" if value < 0 else size


def spread(values: Any, form: str | Callable[[float], str], bold: bool = False) -> str:
    """Median, smallest and largest: "2.0 (1.0 to 3.0)"; only the value if there is just one."""
    ordered = sorted(values)
    write = form.format if isinstance(form, str) else form
    low, middle, high = map(write, (ordered[0], statistics.median(ordered), ordered[-1]))
    middle = f"**{middle}**" if bold else middle
    return middle if len(ordered) == 1 else f"{middle} ({low} to {high})"


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)
