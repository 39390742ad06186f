"""A progress bar on stderr, with rate and time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import rich.progress
from rich.console import Console
from rich.text import Text


class Rate(rich.progress.ProgressColumn):
    """Images per second."""

    def render(self, task: rich.progress.Task) -> Text:
        return Text(f"{task.speed:,.0f} images/s, time left" if task.speed else "")


@contextmanager
def progress_bar(
    doing: str, images: int, present: int = 0, show: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a bar while in the context; `present` images count as done, but not in the rate.

    Returns:
        a function to call with the number of images just done.
    """
    columns = (rich.progress.BarColumn(), rich.progress.MofNCompleteColumn(), Rate())
    left, console = rich.progress.TimeRemainingColumn(), Console(stderr=True)
    with rich.progress.Progress(doing, *columns, left, console=console, disable=not (show and images)) as bar:
        task = bar.add_task(doing, total=images + present, completed=present)
        yield lambda done: bar.advance(task, done)
