"""The progress of long work on stderr: number of items done, rate, and remaining time."""

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
    """Context that shows progress: a bar on a terminal, one line every 30 seconds in a log file.

    A stop signal is reported with the number of items done. The bar disappears at the end. Lines printed to stdout or
    stderr on a terminal appear above it; if stdout is a file or a pipe, it is not changed. The rate leaves out the
    first items, whose time includes warming up.

    Args:
        activity: one or two words, such as "captioning".
        total: number of items to do.
        present: number of items done before; they are counted as done, but not in the rate.
        unit: the items, in the plural.

    Returns:
        a function to call with the number of items just done.
    """
    if total <= 1:  # there is no progress to show, and rich takes time to import
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
        redirect_stdout=sys.stdout.isatty(),  # else rich would print it to its console, which is stderr
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
            count = f"{task.completed:,.0f} of {task.total:,.0f} {unit}"
            with suppress(OSError):  # the terminal is closed
                print(f"{activity}: stopped after {count}", file=sys.stderr, flush=True)
            raise


def counted(items: Iterable[T], advance: Callable[[int], None]) -> Iterator[T]:
    """Yield the items; each is counted as done when the next one is requested."""
    for item in items:
        yield item
        advance(1)


def _status(task: Task, unit: str) -> str:
    """The status as text, such as "1,216 of 8,091 photos, 34.2/s, 0:03:21 left"."""
    text = f"{task.completed:,} of {task.total:,} {unit}"
    if not task.speed or task.time_remaining is None:
        return text
    return f"{text}, {task.speed:,.1f}/s, {timedelta(seconds=round(task.time_remaining))} left"
