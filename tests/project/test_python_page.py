"""docs/python.md: its session, typed in again, gives the same output, but for the last digits of numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.page_blocks import page_blocks
from helpers.sessions import typed, without_numbers

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_session_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(REPOSITORY)
    sessions = page_blocks("python.md", "pycon")
    assert len(sessions) >= 2
    expected = "".join(sessions)
    assert without_numbers(typed(expected)) == without_numbers(expected)
