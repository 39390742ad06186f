"""tools/benchmark.py: what it writes into its document, and what it measures with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, measuring nothing: a section's text is its name and how often it was measured."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import benchmark

    counts: dict[str, int] = {}

    def measured(name: str, *_: Any) -> str:
        counts[name] = counts.get(name, 0) + 1
        return f"## {name}\n\n| {counts[name]} |"

    monkeypatch.setattr(benchmark, "measured", measured)
    return benchmark


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    import speed_common

    return speed_common


def write(benchmark: Any, document: Path, only: str) -> dict[str, str]:
    assert benchmark.main(["--only", only, "--write", str(document)]) == 0
    return benchmark.read(document)


def test_only_what_was_measured_is_replaced(benchmark: Any, tmp_path: Path):
    document = tmp_path / "new" / "performance.md"
    assert write(benchmark, document, "search") == {"search": "## search\n\n| 1 |"}
    assert write(benchmark, document, "training")["search"] == "## search\n\n| 1 |"
    again = write(benchmark, document, "search")
    assert again == {"training": "## training\n\n| 1 |", "search": "## search\n\n| 2 |"}
    text = document.read_text()
    assert text.startswith("# Performance\n")
    assert text.index("## training") < text.index("## search")
    assert text.count("# Performance\n") == 1


def test_a_gpu_stands_beside_the_cpu(benchmark: Any, tmp_path: Path):
    document = tmp_path / "performance.md"
    write(benchmark, document, "training,search")
    benchmark.put_into(document, benchmark.key("training", torch.device("cuda")), "| of a GPU |")
    assert list(benchmark.read(document)) == ["training", "training on cuda", "search"]


def test_nothing_measured_does_not_replace_what_was(benchmark: Any, tmp_path: Path):
    document = tmp_path / "performance.md"
    benchmark.put_into(document, "kernel", "not here")
    assert benchmark.read(document) == {"kernel": "not here"}
    benchmark.put_into(document, "kernel on cuda", "| 1 |")
    benchmark.put_into(document, "kernel", "not here")
    assert benchmark.read(document)["kernel on cuda"] == "| 1 |"


def test_an_unknown_section_is_refused_with_those_there_are(
    benchmark: Any, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--only", "trainings"])
    assert "no section is called trainings: choose from training, gains, search" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(benchmark: Any, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--device", "cuda"])
    assert "finds no GPU" in capsys.readouterr().err


def test_every_section_has_its_module(benchmark: Any):
    for name in benchmark.sections():
        assert "def measure(setting: Setting) -> list[str]:" in (TOOLS / f"speed_{name}.py").read_text()


@pytest.mark.parametrize(
    "given",
    [["--quick", "--write", "a.md", "--only", "x"], ["--quick", "--write=a.md", "--only", "x"]],
)
def test_the_command_is_told_without_the_document(benchmark: Any, given: list[str]):
    assert benchmark.without_write(given) == ["--quick", "--only", "x"]


def test_ratios_are_those_of_neighbouring_runs(common: Any):
    times = common.Times({"slow": [4.0, 10.0, 6.0], "fast": [1.0, 2.0, 3.0]})
    assert times.row("slow", "slow") == ["6.00 s", "1"]
    assert times.row("fast", "slow") == ["2.00 s", "**4.0** (2.0 to 5.0)"]


def test_contestants_take_turns_after_a_run_that_does_not_count(common: Any):
    ran: list[str] = []
    setting = common.Setting(torch.device("cpu"), quick=True, rounds=2)
    times = common.take_turns({name: lambda name=name: ran.append(name) for name in "ab"}, setting)
    assert ran == list("ab" * 3)
    assert {name: len(seconds) for name, seconds in times.seconds.items()} == {"a": 2, "b": 2}
