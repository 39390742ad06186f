"""Stop signals: Ctrl-C, and the signals of schedulers and closing terminals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from caption.core.errors import Stopped

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)
)
"""SLURM's `--signal` usually sends SIGUSR1 some time before the end."""


def ignore_stop_signals(worker: int) -> None:
    """Ignore stop signals in a worker process, since a terminal also sends them to the main process, which stops the
    worker when the step is complete.

    SIGTERM ends the worker after 10 seconds, because a main process that has failed also sends it to its workers.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGTERM, lambda *signalled: signal.alarm(10))


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """Context that raises KeyboardInterrupt on Ctrl-C, and `Stopped` on a signal that would end the process without
    cleaning up.

    Only the first of these signals counts, because schedulers and closing terminals repeat them.
    """
    is_stopped = False

    def handle(number: int, frame: Any) -> None:
        nonlocal is_stopped
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if not is_stopped:
            is_stopped = True
            raise Stopped(number)

    replaced = _install(handle)
    try:
        yield
    finally:
        _restore(replaced)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Context that completes a short step, such as one entry of the output, before a stop signal takes effect. A second
    Ctrl-C stops it at once."""
    request = StopRequest()
    request.install()
    try:
        yield
    finally:
        request.restore()
    if request.received is not None:
        signal.raise_signal(request.received)


@contextmanager
def stopping_in_order(stop: Callable[[], None]) -> Iterator[None]:
    """Context in which a stop signal calls `stop`, after which the context ends soon. Then the signal takes effect.

    An exception that a signal raises inside an event loop would break off its tasks, with a traceback for each.
    """
    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        received.append(number)
        stop()

    replaced = _install(handle)
    try:
        yield
    finally:
        _restore(replaced)
    if received:
        signal.raise_signal(received[0])


class StopRequest:
    """Stores a signal until the step is complete. A second Ctrl-C raises at once.

    `install` and `restore` are separate, because Lightning calls one hook at the start and another at the end.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._replaced: dict[int, Any] = {}

    def install(self) -> None:
        self.received = None
        self._replaced = _install(self._handle)

    def restore(self) -> None:
        _restore(self._replaced)
        self._replaced = {}

    def _handle(self, number: int, frame: Any) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # schedulers repeat their signals
        self.received = number
        with suppress(OSError):  # the terminal is closed
            # Not print: the signal may have interrupted a print.
            os.write(2, f"\n{name_of(number)}: stopping after this step (Ctrl-C: at once)\n".encode())


def name_of(number: int) -> str:
    """The name of a signal: "Ctrl-C", "SIGTERM", ..."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def _install(handler: Callable[[int, Any], None]) -> dict[int, Any]:
    """Install a handler for all stop signals except ignored ones (nohup); returns the previous handlers."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    previous = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    return {
        number: signal.signal(number, handler)
        for number in STOP_SIGNALS
        if previous[number] != signal.SIG_IGN
    }


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
