"""Progress on stderr: lines in a log file, a bar on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from caption.runtime import progress
from caption.runtime.progress import counted, progress_bar


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_in_a_file_there_is_a_line_now_and_then(clock, capsys):
    """Earlier items count, but not in the rate; the last one needs no line."""
    with progress_bar("captioning", 90, 1000, unit="photos") as advance:
        for _ in range(90):
            clock[0] += 1.0
            advance(1)
    assert capsys.readouterr() == (
        "",
        "captioning: 1,030 of 1,090 photos, 1.0/s, 0:01:00 left\n"
        "captioning: 1,060 of 1,090 photos, 1.0/s, 0:00:30 left\n",
    )


def test_the_first_item_includes_warming_up_and_gives_no_estimate(clock, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.0)
    with progress_bar("captioning", 100, unit="photos") as advance:
        clock[0] += 120  # loading, and the first batch
        advance(1)
        advance(1)
        clock[0] += 4
        advance(4)
    assert capsys.readouterr().err.splitlines() == [
        "captioning: 1 of 100 photos",
        "captioning: 2 of 100 photos",
        "captioning: 6 of 100 photos, 1.2/s, 0:01:16 left",
    ]


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
    assert "0 of 2 photos" in err.getvalue()
    assert "captioning" in err.getvalue()
    assert "a message" in err.getvalue()
    assert err.getvalue().rstrip().endswith("\x1b[2K")
    if stdout is Terminal:  # one terminal for both: the caption appears above the bar
        assert "a caption" in err.getvalue()
    else:
        assert out.getvalue() == "a caption\n"
    assert sys.stdout is out
    assert sys.stderr is err


def test_an_item_counts_when_the_next_is_taken():
    done: list[int] = []
    items = counted("ab", done.append)
    assert next(items) == "a"
    assert done == []
    assert next(items) == "b"
    assert done == [1]
    assert list(items) == []
    assert done == [1, 1]
