"""What `tools/speed_growth.py` measures runs, and what it says of it is right."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image


@pytest.fixture(scope="module")
def growth() -> Iterator[Any]:
    """The module."""
    folder = str(Path(__file__).parents[2] / "tools")
    sys.path.insert(0, folder)
    try:
        import speed_growth

        yield speed_growth
    finally:
        sys.path.remove(folder)


@pytest.fixture
def few(growth: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Images; more than a batch."""
    monkeypatch.setattr(growth, "BATCH", 8)
    return 20


def test_the_exponent_is_of_the_last_tenfold(growth: Any):
    points = [growth.Point(count, seconds, 0) for count, seconds in ((10, 9.0), (100, 1.0), (1000, 100.0))]
    assert growth.exponent(points) == pytest.approx(2)


def test_the_table_tells_time_memory_and_growth(growth: Any):
    found = {
        "index": [growth.Point(10**power, 2.0 * 10**power, 3e6 * 10**power) for power in (1, 2, 3)],
        "scoring": [growth.Point(10**power, 1.0 * 100**power, 5e6) for power in (1, 2)],
    }
    text = "\n".join(growth.report(found))
    assert "|  | 10 | 100 | 1,000 | exponent | per image |" in text
    assert "| index | 20 s, 30 MB | 200 s, 300 MB | 2e+03 s, 3000 MB | **1.00** | 3,000,000 B |" in text
    assert "| scoring | 100 s, 5 MB | 1e+04 s, 5 MB |  | **2.00** | 0 B |" in text


def test_captions_are_as_many_and_as_long_and_the_same_again(growth: Any):
    first, again, other = (list(growth.captions(50, seed)) for seed in (0, 0, 1))
    assert first == again != other
    assert {len(text.split()) for text in first} == {8}
    assert len(first) == 50


@pytest.mark.parametrize(
    "name", ["vocabulary", "index", "reading", "loading", "search", "scoring", "training"]
)
def test_everything_that_is_measured_runs(
    growth: Any, few: int, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
):
    threads = torch.get_num_threads()
    monkeypatch.setattr(growth, "FEW", few)
    monkeypatch.setattr(growth.logging, "disable", lambda level: None)
    growth.prepare(tmp_path, few, [name])
    try:
        growth.here(name, few, str(tmp_path), str(tmp_path))
    finally:
        torch.set_num_threads(threads)
    seconds, held = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert seconds > 0
    assert held >= 0


def test_the_figure_is_small(growth: Any, tmp_path: Path):
    points = [growth.Point(10**power, 10.0**power, 10.0**power) for power in range(3, 6)]
    growth.draw(dict.fromkeys(growth.LARGEST, points), tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size < 200_000
    with Image.open(tmp_path / "growth.png") as figure:
        assert figure.width > figure.height
