"""Two checkouts side by side: the training step, beam search and their memory, with the ratio of each."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import torch

from tools.benchmark.harness import Setting, say, seconds, spread
from tools.documents import table

CORE = Path(__file__).with_name("core.py")
HERE = CORE.parents[2]
TURNS = 8
"""Runs of each checkout in a round."""


class Worker:
    """A process that measures the `caption` package of one checkout on request."""

    def __init__(self, checkout: Path, setting: Setting) -> None:
        size = "quick" if setting.quick else "full"
        command = [sys.executable, str(CORE), str(setting.device), str(torch.get_num_threads()), size]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        found, self.tasks = self._answer()
        if not Path(found).resolve().is_relative_to(checkout):
            self.close()
            raise SystemExit(f"{checkout} has no package `caption`; Python found {found}")

    def ask(self, what: str, task: str) -> float:
        """The seconds that a run takes, or the bytes that it allocates."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what} {task}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        self.process.communicate()

    def _answer(self):  # type: ignore[no-untyped-def]
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"measuring failed: `{' '.join(self.process.args)}`")  # it wrote why to stderr
        return json.loads(line)


def compare(other: Path, setting: Setting) -> str:
    """A Markdown table of both checkouts and their ratios.

    Each round starts a process for each checkout, and the two take turns run by run. New processes in each round
    average out what differs from process to process, such as where memory lies.

    Raises:
        SystemExit: there is no package in `other`, or it cannot be measured.
    """
    checkouts = [other.resolve(), HERE]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(setting.rounds):
        with ExitStack() as stack:
            workers = [Worker(checkout, setting) for checkout in checkouts]
            for worker in workers:
                stack.callback(worker.close)
            for task in workers[1].tasks:
                for what, turns in (("seconds", 2 if setting.quick else TURNS), ("bytes", 1)):
                    measured = _in_turns(workers, what, task, turns)
                    found.setdefault((task, what), []).append(measured)
                    say(f"round {number + 1}, {task}: {what} {measured[0]:.4g} and {measured[1]:.4g}")
    rows = [
        [
            f"{task}: {'time' if what == 'seconds' else 'peak memory'}",
            *(_write(what, statistics.median(pair[k] for pair in pairs)) for k in (0, 1)),
            spread((ours / theirs for theirs, ours in pairs), "{:.3f}", bold=True),
        ]
        for (task, what), pairs in found.items()
    ]
    return table(["", f"`{other}`", "this checkout", "this / other (range over rounds)"], rows)


def _in_turns(workers: list[Worker], what: str, task: str, turns: int) -> tuple[float, float]:
    """The median of each worker's runs. The first runs, which prepare the task, do not count."""
    found: list[list[float]] = [[], []]
    for turn in range(turns + 1):
        for k in (0, 1) if turn % 2 else (1, 0):
            found[k].append(workers[k].ask(what, task))
    first, second = (statistics.median(runs[1:]) for runs in found)
    return first, second


def _write(what: str, value: float) -> str:
    return seconds(value) if what == "seconds" else f"{value / 1e6:.0f} MB"
