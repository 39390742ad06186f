"""docs/python.md: its session, typed in again, gives the same output, but for the last digits of numbers."""

from __future__ import annotations

import code
import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")


class Console(code.InteractiveConsole):
    """Shows the last line of a traceback only, as the page does."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        print(f"{type(error).__module__}.{type(error).__qualname__}: {error}")


def typed(page: str) -> str:
    """The output of a session, with its input."""
    console, out, more = Console(), io.StringIO(), False
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        for line in re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", page, re.MULTILINE):
            print(f"{'...' if more else '>>>'} {line}".rstrip())
            more = console.push(line)
    return out.getvalue()


@pytest.mark.slow
def test_the_session_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(REPOSITORY)
    sessions = re.findall(r"```pycon\n(.*?)```", PAGE, re.DOTALL)
    assert len(sessions) >= 2
    expected = "".join(sessions)
    assert re.sub(r"\d+", "#", typed(expected)).split() == re.sub(r"\d+", "#", expected).split()
