"""The progress of long work on stderr: how many are done, how fast, and the time left."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from caption.core.errors import STOPS

if TYPE_CHECKING:
    from rich.progress import Task

T = TypeVar("T")
LOG_INTERVAL = 30.0
"""Seconds between two lines in a log file."""


@contextmanager
def progress_bar(
    activity: str, total: int, present: int = 0, unit: str = "images"
) -> Iterator[Callable[[int], None]]:
    """Show progress while in the context: a bar on a terminal, in a log file one line every 30 seconds.

    A stop signal is reported with the number of items done. The bar disappears at the end. Lines printed to stdout or
    stderr on a terminal appear above it; a stdout that is a file or a pipe is left alone. The rate does not count the
    first items, whose time includes warming up.

    Args:
        activity: in a word or two, such as "captioning".
        total: how many items remain to be done.
        present: how many were done before. They count as done, but not in the rate.
        unit: what is counted, in the plural.

    Returns:
        a function to call with the number of items just done.
    """
    if total <= 1:  # nothing to wait for in between, and rich takes time to import
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    class Status(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_status(task, unit))

    on_terminal = sys.stderr.isatty()
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        Status(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # otherwise rich would send it to its console, which is stderr
        disable=not on_terminal,
        get_time=time.monotonic,
        speed_estimate_period=math.inf,
    )
    progress.add_task(activity, total=present + total, completed=present)
    (task,) = progress.tasks
    logged = time.monotonic()

    def advance(count: int) -> None:
        nonlocal logged
        progress.advance(task.id, count)
        now = time.monotonic()
        if not on_terminal and not task.finished and now - logged >= LOG_INTERVAL:
            print(f"{activity}: {_status(task, unit)}", file=sys.stderr, flush=True)
            logged = now

    with progress:
        try:
            yield advance
        except STOPS:
            done = f"{task.completed:,.0f} of {task.total:,.0f} {unit}"
            with suppress(OSError):  # the terminal is gone
                print(f"{activity}: stopped after {done}", file=sys.stderr, flush=True)
            raise


def counted(items: Iterable[T], advance: Callable[[int], None]) -> Iterator[T]:
    """The items, each of which counts as done when the next one is taken."""
    for item in items:
        yield item
        advance(1)


def _status(task: Task, unit: str) -> str:
    """Such as "1,216 of 8,091 photos, 34.2/s, 0:03:21 left"."""
    text = f"{task.completed:,} of {task.total:,} {unit}"
    if not task.speed or task.time_remaining is None:
        return text
    return f"{text}, {task.speed:,.1f}/s, {timedelta(seconds=round(task.time_remaining))} left"
