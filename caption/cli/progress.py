"""How far a long command is, in a line on stderr: so many of so many, how fast, how long still."""

from __future__ import annotations

import sys
import time

ON_TERMINAL = 0.5
"""Seconds between two looks of a line that is written anew in its place."""
IN_FILE = 30.0
"""Seconds between two lines of a log."""
ERASE = "\r\x1b[K"


class Progress:
    """A status line: on a terminal always the same one, in a file one now and then, and none of what is soon done.

    Args:
        doing: the first word or two, such as "captioned".
        what: of what, in the plural.
        total: how many there are.
    """

    def __init__(self, doing: str, what: str, total: int) -> None:
        self.doing = doing
        self.what = what
        self.total = total
        self.done = 0
        self.started = self.shown = time.monotonic()
        self.on_terminal = sys.stderr.isatty()
        self.visible = False

    def advance(self) -> None:
        """One more is done."""
        self.done += 1
        now = time.monotonic()
        if self.done < self.total and now - self.shown >= (ON_TERMINAL if self.on_terminal else IN_FILE):
            self.clear()
            print(self.text(now), end="" if self.on_terminal else "\n", file=sys.stderr, flush=True)
            self.shown, self.visible = now, self.on_terminal

    def clear(self) -> None:
        """Make room on the terminal for something else; the next `advance` that is due writes the line again."""
        if self.visible:
            print(ERASE, end="", file=sys.stderr, flush=True)
            self.visible = False

    def text(self, now: float) -> str:
        """The line: "captioned 1,216 of 8,091 photos, 34.2/s, 3 min 21 s left"."""
        rate = self.done / max(now - self.started, 1e-9)
        left = duration((self.total - self.done) / rate) if rate else "unknown time"
        return f"{self.doing} {self.done:,} of {self.total:,} {self.what}, {rate:,.1f}/s, {left} left"


def duration(seconds: float) -> str:
    """For people: "12 s", "3 min 21 s", "5 h 7 min"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
