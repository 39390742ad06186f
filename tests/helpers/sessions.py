"""Interactive sessions of Python in pages of docs/, typed in again."""

from __future__ import annotations

import code
import contextlib
import io
import re
import sys


class Console(code.InteractiveConsole):
    """Shows the last line of a traceback only, as the pages do."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        print(f"{type(error).__module__}.{type(error).__qualname__}: {error}")


def typed(session: str) -> str:
    """The output of a session, with its input."""
    console, out, more = Console(), io.StringIO(), False
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        for line in re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", session, re.MULTILINE):
            print(f"{'...' if more else '>>>'} {line}".rstrip())
            more = console.push(line)
    return out.getvalue()


def without_numbers(session: str) -> list[str]:
    """The words of a session: numbers may differ in their last digits, and lines in where they are broken."""
    return re.sub(r"\d+", "#", session).split()
