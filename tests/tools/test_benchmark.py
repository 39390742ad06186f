"""The benchmark's command: its document and its timing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.cpu_graphs import CPUGraphs
from PIL import Image

from caption.data.photos import ImageTransform
from tools.benchmark import __main__ as benchmark
from tools.benchmark import forms, harness, parts, sgrvinod
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


@pytest.mark.nightly
def test_forms_are_measured_and_compared_on_a_cpu_in_the_place_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """With the recorder of CUDA graphs, and without the compiler."""
    graphs = CPUGraphs(monkeypatch)
    monkeypatch.setattr(forms, "has_graphs", lambda device: True)
    monkeypatch.setattr(forms.loop, "is_host", lambda device: False)
    monkeypatch.setattr("caption.kernels.acceleration.check_compiler", lambda device: None)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda steps, samples, **options: steps)
    for name, value in {"REGIONS": 4, "VOCABULARY": 50, "SHORTEST": 3, "LONGEST": 6, "STEPS": 4}.items():
        monkeypatch.setattr(forms.core, name, value)
    file = tmp_path / "forms.json"
    text = forms.forms(harness.Setting(CPU, quick=True, rounds=1, json=file))
    results = json.loads(file.read_text())
    assert graphs.replays
    assert {result["failed"] for result in results if "failed" in result} == set()
    assert {result["form"] for result in results} == {
        *("plain", "joined", "graph of an unroll", "graphs of steps", "compiled", "reduce-overhead"),
        *("graph of a step", "graph of the search"),
    }
    assert all(result["difference"] < (0.05 if result["precision"] == "bf16" else 1e-3) for result in results)
    assert text.count("\n") == len(results) + 1


def test_a_form_that_fails_is_reported(tmp_path: Path):
    def broken() -> forms.Contestant:
        raise RuntimeError("CUDA | error")

    right = forms.Contestant(lambda: torch.ones(2), lambda: [torch.ones(2)])
    found = forms.measured(
        "training step", 8, 2, False, {"plain": lambda: right, "other": broken}, harness.Setting(CPU, True, 1)
    )
    assert found[1]["failed"] == "RuntimeError: CUDA | error"
    assert forms.row(found[1])[5] == "RuntimeError: CUDA / error"
    assert found[0]["difference"] == 0


@pytest.mark.parametrize("size", [(500, 375), (333, 500), (40, 30), (64, 64), (190, 101)])
@pytest.mark.parametrize(
    "transform", [ImageTransform(64), ImageTransform((48, 80), "squash"), ImageTransform(64, resize=80)]
)
def test_resizing_on_a_device_is_pillows(size: tuple[int, int], transform: ImageTransform):
    width, height = (min(side, 3 * 48 - 1) for side in size)  # larger ones are reduced first
    pixels = torch.randint(
        0, 256, (3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    expected = transform(Image.fromarray(pixels.permute(1, 2, 0).numpy()))
    found = parts.resized(pixels, transform)
    assert int((found.int() - expected.int()).abs().max()) <= parts.TOLERANCE


@pytest.mark.nightly
def test_parts_of_captioning_photos(tmp_path: Path):
    file = tmp_path / "parts.json"
    text = parts.parts(harness.Setting(CPU, quick=True, rounds=1, json=file))
    assert "| photos to captions |" in text
    assert "differs from Pillow by at most 1 of 255" in text or "by at most 0 of 255" in text
    assert json.loads(file.read_text())["photos"] == 16
