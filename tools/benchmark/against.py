"""Two checkouts side by side: the training step, beam search and their memory, with the ratio of each."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from tools.benchmark.harness import Setting, say, seconds, spread
from tools.documents import table

CORE = Path(__file__).with_name("core.py")
HERE = CORE.parents[2]
TURNS = 5
"""Runs of each checkout in a round."""
MEASURED = {"time": seconds, "CPU time": seconds, "peak memory": lambda value: f"{value / 1e6:.1f} MB"}


class Worker:
    """A process that measures the `caption` package of one checkout on request."""

    def __init__(self, checkout: Path, setting: Setting) -> None:
        size = "quick" if setting.quick else "full"
        command = [sys.executable, str(CORE), str(setting.device), str(torch.get_num_threads()), size]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        found, self.tasks = self._answer()
        if not Path(found).resolve().is_relative_to(checkout):
            self.process.communicate()
            raise SystemExit(f"{checkout} has no package `caption`; Python found {found}")

    def ask(self, task: str) -> list[float]:
        """Run a task; returns one number for each of `MEASURED`."""
        self.process.stdin.write(f"{task}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"measuring failed: `{' '.join(self.process.args)}`")  # it wrote why to stderr
        return json.loads(line)


def compare(other: Path, setting: Setting) -> str:
    """A Markdown table of both checkouts and their ratios.

    Each round starts a process for each checkout, and the two take turns run by run. New processes in each round
    average out what differs from process to process, such as where memory lies. CPU time is less disturbed by other
    work on the machine, especially with one thread.

    Raises:
        SystemExit: there is no package in `other`, or it cannot be measured.
    """
    rounds: dict[str, list[list[list[float]]]] = {}
    for number in range(setting.rounds):
        with ExitStack() as stack:
            workers = [Worker(checkout, setting) for checkout in (other.resolve(), HERE)]
            for worker in workers:
                stack.callback(worker.process.communicate)
            for task in workers[1].tasks:
                say(f"round {number + 1}: {task}")
                rounds.setdefault(task, []).append(_in_turns(workers, task, 2 if setting.quick else TURNS))
    rows = []
    for task, found in rounds.items():
        for place, (name, write) in enumerate(MEASURED.items()):
            theirs, ours = ([one[k][place] for one in found] for k in (0, 1))
            ratio = spread((b / a for a, b in zip(theirs, ours, strict=True)), "{:.3f}", bold=True)
            rows.append([f"{task}: {name}", *(write(statistics.median(of)) for of in (theirs, ours)), ratio])
    return table(["", f"`{other}`", "this checkout", "this / other (range over rounds)"], rows)


def _in_turns(workers: list[Worker], task: str, turns: int) -> list[list[float]]:
    """The medians of each worker's runs. The first runs, which prepare the task, do not count."""
    runs: list[list[list[float]]] = [[], []]
    for turn in range(turns + 1):
        for k in (0, 1) if turn % 2 else (1, 0):
            runs[k].append(workers[k].ask(task))
    return [[statistics.median(values) for values in zip(*found[1:], strict=True)] for found in runs]
