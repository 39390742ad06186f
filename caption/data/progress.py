"""The type of progress bars that callers pass to long work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""`with bar(activity, total) as advance`, then `advance(n)` for every n items that are done."""


@contextmanager
def no_progress(activity: str, total: int) -> Iterator[Callable[[int], None]]:
    """The bar that shows nothing."""
    yield lambda done: None
