"""Two checkouts side by side: the training step, beam search and their memory, with the ratio of each."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from tools.benchmark.harness import HERE, Setting, new_process, say, seconds, spread
from tools.documents import table

TURNS = 5
"""Runs of each checkout in a round."""
TASKS = ("training step", "beam 5")
MEASURED: dict[str, Callable[[float], str]] = {
    "time": seconds,
    "CPU time": seconds,
    "peak memory": lambda value: f"{value / 1e6:.1f} MB",
}


def compare(other: Path, setting: Setting, region_sizes: tuple[int, ...] = (2048, 512)) -> str:
    """A Markdown table of both checkouts and their ratios.

    Each round starts a process for each checkout, and the two take turns run by run. New processes in each round
    average out what differs from process to process, such as where memory lies. CPU time is less disturbed by other
    work on the machine, especially with one thread.

    Raises:
        SystemExit: there is no package in `other`.
    """
    tasks = list(product(TASKS, region_sizes))
    rounds: dict[tuple[str, int], list[list[list[float]]]] = {task: [] for task in tasks}
    for number in range(setting.rounds):
        with ExitStack() as stack:
            checkouts = (other.resolve(), HERE)
            workers = [stack.enter_context(new_process(each, setting.threads)) for each in checkouts]
            found = workers[0].submit(package).result()
            if not Path(found).resolve().is_relative_to(other.resolve()):
                raise SystemExit(f"{other} has no package `caption`; Python found {found}")
            for task in tasks:
                say(f"round {number + 1}: {task[0]}, D {task[1]}")
                rounds[task].append(_in_turns(workers, task, setting))
    rows = []
    for (task, region_size), of_rounds in rounds.items():
        for place, (name, write) in enumerate(MEASURED.items()):
            theirs, ours = ([one[k][place] for one in of_rounds] for k in (0, 1))
            ratio = spread((b / a for a, b in zip(theirs, ours, strict=True)), "{:.3f}", bold=True)
            medians = [write(statistics.median(values)) for values in (theirs, ours)]
            rows.append([f"{task}, D {region_size}: {name}", *medians, ratio])
    return table(["", f"`{other}`", "this checkout", "this / other (range over rounds)"], rows)


def package() -> str:
    """Where the package is, in a new process."""
    import caption

    return str(caption.__file__)


def measure(task: str, region_size: int, setting: Setting) -> list[float]:
    """One number for each of `MEASURED`, in a new process. The first call also prepares the task."""
    from tools.benchmark.core import measure_task

    return measure_task(task, region_size, setting)


def _in_turns(
    workers: list[ProcessPoolExecutor], task: tuple[str, int], setting: Setting
) -> list[list[float]]:
    """The medians of each worker's runs. The first runs, which prepare the task, do not count."""
    runs: list[list[list[float]]] = [[], []]
    for turn in range(1 + (2 if setting.quick else TURNS)):
        for k in (0, 1) if turn % 2 else (1, 0):
            runs[k].append(workers[k].submit(measure, *task, setting).result())
    return [[statistics.median(values) for values in zip(*found[1:], strict=True)] for found in runs]
