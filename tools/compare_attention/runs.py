"""Many runs, one after the other or in several processes. One that fails does not end the others."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import torch

from caption.errors import UserError
from tools.compare_attention.bench import Advance, Bench
from tools.compare_attention.data_sets import Budget, DataSet
from tools.compare_attention.mechanisms import Mechanism


class Job(NamedTuple):
    """A run to be done."""

    mechanism: Mechanism
    seed: int

    def __str__(self) -> str:
        return f"{self.mechanism.name}, seed {self.seed}"


class Outcome(NamedTuple):
    """How a job went."""

    job: Job
    result: dict[str, Any] | None
    reason: str = ""
    """Why there is no result."""


def one_by_one(
    bench: Bench, jobs: Sequence[Job], begin: Callable[[Job], None], advance: Advance
) -> Iterator[Outcome]:
    """Do the jobs in this process.

    Args:
        bench: with the budget.
        jobs: to be done.
        begin: called before each job.
        advance: called with the share of a job that was just done.
    """
    for job in jobs:
        begin(job)
        yield _outcome(bench, job, advance)


def in_processes(bench: Bench, jobs: Sequence[Job], processes: int, threads: int) -> Iterator[Outcome]:
    """Do the jobs in several processes; the outcomes come in the order in which they are ready."""
    pool = ProcessPoolExecutor(
        min(processes, len(jobs)),
        get_context("spawn"),
        _start,
        (bench.budget, bench.folder, bench.data_set, threads),
    )
    try:
        futures = {pool.submit(_in_worker, job): job for job in jobs}
        for future in as_completed(futures):
            try:
                yield future.result()
            except BrokenProcessPool as error:
                yield Outcome(futures[future], None, f"the process that did it has ended: {error}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_bench: Bench
"""Of a worker process."""


def _start(budget: Budget, folder: Path, data_set: DataSet, threads: int) -> None:
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    _bench = Bench(budget, folder, data_set)


def _end_with_parent() -> None:
    """A process whose parent was killed would otherwise go on with its run, beside those of the next start."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _in_worker(job: Job) -> Outcome:
    return _outcome(_bench, job)


def _outcome(bench: Bench, job: Job, advance: Advance = lambda share: None) -> Outcome:
    try:
        return Outcome(job, bench.run(*job, advance))
    except UserError as error:
        return Outcome(job, None, str(error))
    except Exception as error:
        log = bench.folder / f"{job.mechanism.name}-{job.seed}.error.txt"
        log.write_text(traceback.format_exc(), encoding="utf-8")
        return Outcome(job, None, f"{type(error).__name__}: {error} (traceback in {log})")
