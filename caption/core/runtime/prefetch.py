"""Prefetching in threads: the next photos are decoded while the model works on the current ones."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from caption.core.errors import ImageError

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(
    function: Callable[[Item], Result], items: Iterable[Item], ahead: int, workers: int | None = None
) -> Generator[tuple[Item, Result | ImageError], None, None]:
    """Call a function on each item in threads, a limited number of items in advance.

    Pillow and hashlib release the interpreter's lock, so threads decode and hash in parallel. Closing the iterator
    cancels the calls that have not begun and waits for the others.

    Args:
        function: called once for each item, in any thread. An `ImageError` becomes that item's result; any other
            exception is raised when the item would be yielded.
        items: read `ahead` items before they are yielded.
        ahead: number of items in progress or ready.
        workers: number of threads; None = one per processor, at most 16.

    Yields:
        each item with its result, in order.
    """

    def attempt(item: Item) -> Result | ImageError:
        try:
            return function(item)
        except ImageError as error:
            return error

    threads = ThreadPoolExecutor(workers or min(16, os.cpu_count() or 1))
    waiting: deque[tuple[Item, Future[Result | ImageError]]] = deque()
    remaining = iter(items)
    try:
        while True:
            for item in islice(remaining, max(1, ahead + 1 - len(waiting))):
                waiting.append((item, threads.submit(attempt, item)))
            if not waiting:
                return
            item, future = waiting.popleft()
            yield item, future.result()
    finally:
        threads.shutdown(cancel_futures=True)
