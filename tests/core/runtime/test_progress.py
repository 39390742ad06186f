"""Progress on stderr: lines in a log file, a bar on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from caption.core.runtime import progress
from caption.core.runtime.progress import counted, progress_bar


def test_in_a_file_there_is_a_line_now_and_then(monkeypatch, capsys):
    """Earlier items count, but not in the rate, nor does the first, whose time includes loading; the last needs no
    line."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress_bar("captioning", 91, 1000, unit="photos") as advance:
        now[0] += 120
        advance(1)
        for _ in range(90):
            now[0] += 1.0
            advance(1)
    assert capsys.readouterr() == (
        "",
        "captioning: 1,001 of 1,091 photos\n"
        "captioning: 1,031 of 1,091 photos, 1.0/s, 0:01:00 left\n"
        "captioning: 1,061 of 1,091 photos, 1.0/s, 0:00:30 left\n",
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stdout", [io.StringIO, Terminal])
def test_on_a_terminal_a_bar_is_shown_and_erased(monkeypatch, stdout):
    out, err = stdout(), Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with progress_bar("captioning", 2, unit="photos") as advance:
        advance(1)
        print("a caption")
        print("a message", file=sys.stderr)
    for shown in ("captioning", "0 of 2 photos", "a message"):
        assert shown in err.getvalue()
    assert err.getvalue().rstrip().endswith("\x1b[2K")
    # One terminal for both: the caption appears above the bar.
    assert "a caption" in (err if stdout is Terminal else out).getvalue()
    assert (sys.stdout, sys.stderr) == (out, err)


def test_an_item_counts_when_the_next_is_taken():
    done: list[int] = []
    items = counted("ab", done.append)
    assert (next(items), len(done), next(items), len(done)) == ("a", 0, "b", 1)
    assert (list(items), done) == ([], [1, 1])
