"""The progress of long work on stderr: how many are done, how fast, and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta

MEASURED = 2.0
"""Seconds from the first advance to the first rate."""
LOG_INTERVAL = 30.0
"""Seconds between two lines in a log file."""


@contextmanager
def progress_bar(
    doing: str, total: int, present: int = 0, show: bool = True, unit: str = "images"
) -> Iterator[Callable[[int], None]]:
    """Show progress while in the context: a bar on a terminal, in a log file one line every 30 seconds.

    The bar disappears at the end. Lines printed to stdout or stderr on a terminal appear above it; a stdout that is a
    file or a pipe is left alone.

    Args:
        doing: the activity, in a word or two, such as "captioning".
        total: how many items remain to be done.
        present: how many were done before. They count as done, but not in the rate.
        show: whether to show anything.
        unit: what is counted, in the plural.

    Returns:
        a function to call with the number of items just done.
    """
    on_terminal = show and sys.stderr.isatty()
    logged = time.monotonic()
    done = warm = 0
    started = None  # when the first advance came: it includes warming up, and does not count in the rate

    def status(now: float) -> str:
        """Such as "1,216 of 8,091 photos, 34.2/s, 0:03:21 left"."""
        text = f"{present + done:,} of {present + total:,} {unit}"
        if started is None or now - started < MEASURED or done == warm:
            return text
        rate = (done - warm) / (now - started)
        return f"{text}, {rate:,.1f}/s, {timedelta(seconds=round((total - done) / rate))} left"

    def advance(count: int) -> None:
        nonlocal done, logged, started, warm
        done += count
        now = time.monotonic()
        if started is None:
            started, warm = now, done
        if on_terminal:
            bar.update(task, advance=count, status=status(now))
        elif show and done < total and now - logged >= LOG_INTERVAL:
            print(f"{doing}: {status(now)}", file=sys.stderr, flush=True)
            logged = now

    if on_terminal:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}")
        # rich would send stdout to the bar's console, which is stderr.
        console = Console(stderr=True)
        bar = Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty())
        task = bar.add_task(doing, total=present + total, completed=present, status=status(logged))
    with bar if on_terminal else nullcontext():
        yield advance
