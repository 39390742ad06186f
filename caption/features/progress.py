"""A progress bar on stderr, with rate and time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    doing: str, images: int, present: int = 0, show: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a bar while in the context.

    Args:
        doing: what is going on, in a word or two.
        images: how many are to be done.
        present: how many were done before; they count as done, but not in the rate.
        show: whether to show it.

    Returns:
        a function to call with the number of images just done.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} images/s, time left" if task.speed else "– images/s, time left")

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), disable=not (show and images))
    task = bar.add_task(doing, total=images + present, completed=present)
    with bar:
        yield lambda count: bar.advance(task, count)
