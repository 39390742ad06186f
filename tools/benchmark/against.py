"""Two checkouts side by side: the training step, beam search and their memory, with the ratio of each."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from tools.benchmark.harness import HERE, Setting, measure_task, new_process, say, seconds, spread
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
        SystemExit: `other` lacks the package or its benchmark.
    """
    for part in ("caption/__init__.py", "tools/benchmark/core.py"):
        if not (other / part).exists():
            raise SystemExit(f"{other} is not a checkout of this package: it has no {part}")
    tasks = list(product(TASKS, region_sizes))
    rounds: dict[tuple[str, int], list[list[list[float]]]] = {task: [] for task in tasks}
    for number in range(setting.rounds):
        with ExitStack() as stack:
            workers = [stack.enter_context(new_process(each, setting.threads)) for each in (other, HERE)]
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


def _in_turns(
    workers: list[ProcessPoolExecutor], task: tuple[str, int], setting: Setting
) -> list[list[float]]:
    """The medians of each worker's runs. The first runs, which prepare the task, do not count."""
    runs: list[list[list[float]]] = [[], []]
    for turn in range(1 + (2 if setting.quick else TURNS)):
        for k in (0, 1) if turn % 2 else (1, 0):
            runs[k].append(workers[k].submit(measure_task, *task, setting).result())
    return [[statistics.median(values) for values in zip(*of_worker[1:], strict=True)] for of_worker in runs]
