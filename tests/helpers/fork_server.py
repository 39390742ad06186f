"""Commands in processes of their own that need not import torch: each is forked from a server that has imported it.

Such a process has arguments, working directory, environment, streams and id of its own, and gets real signals. What is
decided while Python and torch start is the server's: tests of that need a new interpreter.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import forkserver, get_context, reduction
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1]
PRELOADED = [
    *("helpers.fork_server", "caption.cli.train", "caption.cli.describe.command", "caption.models.model_zoo"),
    *("caption.visualize", "caption.metrics.evaluation", "torchvision"),
]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that stop a command."""


class Ran(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


def default_signals() -> None:
    """Give a signal its default action. A shell ignores some for its background jobs, and children inherit that."""
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


class Command:
    """The `caption` command in a process of its own.

    Args:
        args: of the command line.
        cwd: working directory; None for this one.
        env: the whole environment.
        stdin, stdout, stderr: descriptors; None for nothing to read, and for streams that `finish` returns.
        start_new_session: see `subprocess.Popen`.
    """

    def __init__(
        self,
        *args: object,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        start_new_session: bool = False,
    ) -> None:
        self._kept = [tempfile.TemporaryFile() for _ in ("stdout", "stderr")]  # noqa: SIM115
        out, err = (file.fileno() for file in self._kept)
        with open(os.devnull, "rb") as nothing:
            streams = (
                nothing.fileno() if stdin is None else stdin,
                out if stdout is None else stdout,
                err if stderr is None else stderr,
            )
            settings = {
                "args": [str(arg) for arg in args],
                "cwd": os.path.abspath(cwd or os.getcwd()),
                "env": dict(env),
                "session": start_new_session,
            }
            _start_server()
            self._process = get_context("forkserver").Process(
                target=_run, args=([_Stream(descriptor) for descriptor in streams], settings)
            )
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def wait(self, timeout: float) -> int:
        """The exit code, negative for a signal. A process that has not ended after `timeout` seconds is killed."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise TimeoutError(f"the command was killed after {timeout} s; stderr: {self._text(1)[-2000:]}")
        return self._process.exitcode

    def finish(self, timeout: float = 300) -> Ran:
        """Wait for the end; see `wait`."""
        code = self.wait(timeout)
        ran = Ran(code, self._text(0), self._text(1))
        for file in self._kept:
            file.close()
        return ran

    def _text(self, stream: int) -> str:
        self._kept[stream].seek(0)
        return self._kept[stream].read().decode("utf-8", "surrogateescape")


class _Stream:
    """A descriptor that goes to another process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self.descriptor),)


def _received(duplicate: Any) -> int:
    return duplicate.detach()


def _start_server() -> None:
    """Start the server, if it does not run; it imports tests' helpers, which are not installed."""
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [*(path or "").split(os.pathsep), str(TESTS.parent), str(TESTS)]
    )
    try:
        forkserver.set_forkserver_preload(PRELOADED)
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if path is not None:
            os.environ["PYTHONPATH"] = path


def _run(streams: list[int], settings: Mapping[str, Any]) -> None:
    """In the new process: what `python -m caption` does."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if settings["session"]:
        os.setsid()
    default_signals()
    os.chdir(settings["cwd"])
    os.environ.clear()
    os.environ.update(settings["env"])
    named = [place for place in settings["env"].get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [*named, *(place for place in sys.path if place not in ("", str(TESTS)))]
    sys.argv[:] = ["caption", *settings["args"]]
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")  # strict, as in most locales
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace")

    from caption.cli.main import main

    sys.exit(main())
