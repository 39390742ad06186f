"""The line that says how far a command is."""

from __future__ import annotations

import pytest

from caption.cli import progress
from caption.cli.progress import ERASE, Progress, duration


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def run(clock: list[float], count: int, seconds: float, total: int = 100) -> None:
    shown = Progress("captioned", "photos", total)
    for _ in range(count):
        clock[0] += seconds
        shown.advance()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (12.4, "12 s"), (59.7, "1 min 0 s"), (201, "3 min 21 s"), (3600 * 5 + 425, "5 h 7 min")],
)
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


def test_rate_and_time_left():
    shown = Progress("captioned", "photos", 8091)
    shown.done = 1216
    assert shown.text(shown.started + 32) == "captioned 1,216 of 8,091 photos, 38.0/s, 3 min 1 s left"


def test_nothing_is_known_yet():
    shown = Progress("captioned", "photos", 5)
    assert "unknown time left" in shown.text(shown.started)


def test_in_a_file_there_is_a_line_now_and_then(clock, capsys):
    run(clock, 70, 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "captioned 30 of 100 photos",
        "captioned 60 of 100 photos",
    ]
    assert "1.0/s, 1 min 10 s left" in lines[0]


def test_what_is_soon_done_needs_no_line(clock, capsys):
    run(clock, 100, 0.25)
    assert capsys.readouterr() == ("", "")


def test_the_last_is_not_announced(clock, capsys):
    run(clock, 1, 60.0, total=1)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_one_line_is_written_anew_and_makes_room(clock, capsys, monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    shown = Progress("captioned", "photos", 3)
    clock[0] += 1
    shown.advance()
    clock[0] += 0.1
    shown.advance()  # too soon
    err = capsys.readouterr().err
    assert err == "captioned 1 of 3 photos, 1.0/s, 2 s left"
    shown.clear()
    shown.clear()
    assert capsys.readouterr().err == ERASE
