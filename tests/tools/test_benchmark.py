"""The benchmark's command: its document and its timing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tools.benchmark import __main__ as benchmark
from tools.benchmark import harness, sgrvinod
from tools.documents import read_sections

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]
MARKS = "<!-- section {0} begins -->\n<!-- section {0} ends -->"


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Replace the measurements: a section's table contains the number of measurements."""
    counts: dict[str, int] = {}

    class Process(contextlib.nullcontext):  # type: ignore[type-arg]
        """In the place of another process."""

        def submit(self, function: Any, name: str, setting: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            text = f"| {counts[name]} |" if name != "explore" else "not measured"
            return SimpleNamespace(result=lambda: text)

        def __enter__(self) -> Any:
            return self

    monkeypatch.setattr(benchmark, "new_process", lambda threads: Process())
    return counts


def write(document: Path, only: str) -> dict[str, str]:
    """The numbers of measurements in the sections."""
    assert benchmark.main(["--only", only, "--write", str(document)]) == 0
    return {name: text.split("\n\n")[-1] for name, text in read_sections(document).items()}


def test_only_what_was_measured_is_replaced(counts: dict[str, int], tmp_path: Path):
    document = tmp_path / "performance.md"
    names = ("search", "training", "explore")
    document.write_text("\n\n".join(["# Mine", *(MARKS.format(name) for name in names), "more\n"]))
    assert write(document, "search") == {"search": "| 1 |", "training": "", "explore": ""}
    assert write(document, "training,search") == {"search": "| 2 |", "training": "| 1 |", "explore": ""}
    assert write(document, "explore")["explore"] == ""  # without a GPU
    text = document.read_text()
    assert text.startswith("# Mine\n\n<!-- section search begins -->")
    assert text.count("\n\nmore\n") == 1


def test_a_section_states_the_command_that_measures_it(counts: dict[str, int], capsys: Any):
    assert benchmark.main(["--only", "training,search", "--quick", "--rounds", "3"]) == 0
    command = "; `python -m tools.benchmark --only search --device cpu --rounds 3 --quick`.*\n\n| 1 |"
    assert command in capsys.readouterr().out


def test_wrong_usage_and_a_document_without_the_section_are_refused_before_measuring(
    counts: dict[str, int], tmp_path: Path, capsys: Any
):
    document = tmp_path / "performance.md"
    document.write_text(MARKS.format("search"))
    for arguments, complaint in (
        (["--only", "trainings"], "no section is called trainings: choose from training, search"),
        (["--only", "search,training", "--write", str(document)], "performance.md"),
        *([(["--device", "cuda"], "finds no GPU")] if not torch.cuda.is_available() else []),
    ):
        with pytest.raises(SystemExit, match="2"):
            benchmark.main(arguments)
        assert complaint in capsys.readouterr().err
    assert not counts


def test_ratios_are_those_of_neighbouring_runs():
    times = harness.Times({"slow": [4.0, 10.0, 6.0], "fast": [1.0, 2.0, 3.0]})
    assert times.row("slow", "slow") == ["6.00 s", "1"]
    assert times.row("fast", "slow") == ["2.00 s", "**4.0** (2.0 to 5.0)"]


def test_code_of_others_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    said = sgrvinod.sgrvinod(harness.Setting(CPU, quick=True, rounds=1))
    assert said.startswith("not measured: this needs its code: git clone https://github.com/sgrvinod/")
    (tmp_path / "models.py").touch()
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--only", "sgrvinod", "--sgrvinod", str(tmp_path)])
    assert f"{tmp_path} has no caption.py: git clone https://github.com/sgrvinod/" in capsys.readouterr().err
