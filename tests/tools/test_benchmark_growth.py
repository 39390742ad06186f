"""The growth benchmark: all measurements run, and the report is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tools.benchmark import growth, harness


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Images, more than one batch."""
    monkeypatch.setattr(growth, "BATCH", 8)
    return 20


def test_the_exponent_is_of_the_last_tenfold():
    points = [growth.Point(count, seconds, 0) for count, seconds in ((10, 9.0), (100, 1.0), (1000, 100.0))]
    assert growth.exponent(points) == pytest.approx(2)


def test_the_table_tells_time_memory_and_growth():
    found = {
        "index": [growth.Point(10**power, 2.0 * 10**power, 3e6 * 10**power) for power in (1, 2, 3)],
        "scoring": [growth.Point(10**power, 1.0 * 100**power, 5e6) for power in (1, 2)],
    }
    text = growth.report(found)
    assert "|  | 10 | 100 | 1,000 | exponent | per image |" in text
    assert "| index | 20 s, 30 MB | 200 s, 300 MB | 2e+03 s, 3000 MB | **1.00** | 3,000,000 B |" in text
    assert "| scoring | 100 s, 5 MB | 1e+04 s, 5 MB |  | **2.00** | 0 B |" in text


def test_captions_are_as_many_and_as_long_and_the_same_again():
    first, again, other = (list(harness.made_up(50, seed)) for seed in (0, 0, 1))
    assert first == again != other
    assert {len(text.split()) for text in first} == {8}
    assert len(first) == 50


@pytest.mark.parametrize("name", growth.LARGEST)
def test_everything_that_is_measured_runs(
    few: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    threads = torch.get_num_threads()
    monkeypatch.setattr(growth, "FEW", few)
    monkeypatch.setattr(growth.logging, "disable", lambda level: None)
    growth.prepare(tmp_path, few)
    try:
        point = growth.measure(name, few, tmp_path, tmp_path)
    finally:
        torch.set_num_threads(threads)
    assert point.count == few
    assert point.seconds > 0
    assert point.bytes >= 0
