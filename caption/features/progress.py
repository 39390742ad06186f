"""The progress bars of an extraction: on stderr, with rate and time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(doing: str, images: int, present: int = 0) -> Iterator[Callable[[int], None]]:
    """Show a bar while in the context.

    Args:
        doing: what is going on, in a word or two.
        images: how many are to be done.
        present: how many were done before; they count as done, not into the rate.

    Returns:
        a function to call with the number of images just done.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} images/s, time left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    task = bar.add_task("", total=images + present, completed=present, rate="–")

    def advance(done: int) -> None:
        speed = bar.tasks[0].speed
        bar.update(task, advance=done, rate=f"{speed:,.0f}" if speed else "–")

    with bar:
        yield advance
