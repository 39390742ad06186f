"""One thread that does one job after the other, with a bounded queue; jobs whose asker has left are stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")


class BusyError(Exception):
    """The queue is full."""


class Cancelled(Exception):
    """The job's asker has left."""


class Worker:
    """The thread of the model.

    Args:
        waiting: how many may wait while one is served.
    """

    def __init__(self, waiting: int) -> None:
        self._places = 1 + waiting
        self._taken = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place in the queue.

        Raises:
            BusyError: the queue is full.
        """
        if self._taken >= self._places:
            raise BusyError
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    async def run(
        self, job: Callable[[Callable[[], None]], Result], leaving: Callable[[], Awaitable[None]]
    ) -> Result:
        """Run a job in the thread.

        Args:
            job: gets a function to call now and then, which raises `Cancelled` once the asker has left.
            leaving: returns when the asker leaves.

        Raises:
            Cancelled: the asker has left; the job has ended.
        """
        gone = threading.Event()

        def watch() -> None:
            if gone.is_set():
                raise Cancelled

        def watched() -> Result:
            watch()
            return job(watch)

        done = asyncio.get_running_loop().run_in_executor(self._thread, watched)
        departure: asyncio.Future[None] = asyncio.ensure_future(leaving())
        either: set[asyncio.Future[Any]] = {done, departure}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            departure.cancel()
            if not done.done():
                gone.set()
        return await done  # the place is free only when the thread is

    def close(self) -> None:
        """Drop jobs that wait; the one that runs ends."""
        self._thread.shutdown(wait=False, cancel_futures=True)
