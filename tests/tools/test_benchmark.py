"""The benchmark's command: its document, its timing, and the comparison of two checkouts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tools.benchmark import __main__ as benchmark
from tools.benchmark import against, harness, scores
from tools.documents import read_sections

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]


MARKS = "<!-- section {0} begins -->\n<!-- section {0} ends -->"


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Replace the measurements: a section's table contains the number of measurements."""
    counts: dict[str, int] = {}

    class Process:
        """In the place of another process; it has the package of a checkout."""

        def __init__(self, checkout: Path, threads: int) -> None:
            counts[checkout.name] = counts.get(checkout.name, 0) + 1

        def submit(self, function: Any, module: str, name: str, setting: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            text = f"| {counts[name]} |" if name != "kernel" else "not measured"
            return SimpleNamespace(result=lambda: text)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: Any) -> None:
            pass

    monkeypatch.setattr(benchmark, "new_process", Process)
    return counts


def write(document: Path, only: str) -> dict[str, str]:
    """The numbers of measurements in the sections."""
    assert benchmark.main(["--only", only, "--write", str(document)]) == 0
    return {name: text.split("\n\n")[-1] for name, text in read_sections(document).items()}


def test_only_what_was_measured_is_replaced(counts: dict[str, int], tmp_path: Path):
    document = tmp_path / "performance.md"
    document.write_text(f"# Mine\n\n{MARKS.format('search')}\n\n{MARKS.format('training')}\n\nmore\n")
    assert write(document, "search") == {"search": "| 1 |", "training": ""}
    assert write(document, "training") == {"search": "| 1 |", "training": "| 1 |"}
    assert write(document, "search") == {"search": "| 2 |", "training": "| 1 |"}
    text = document.read_text()
    assert text.startswith("# Mine\n\n<!-- section search begins -->")
    assert text.count("\n\nmore\n") == 1


def test_a_section_states_the_command_that_measures_it(counts: dict[str, int], capsys: Any):
    assert benchmark.main(["--only", "training,search", "--quick", "--rounds", "3"]) == 0
    told = capsys.readouterr().out
    assert "; `python -m tools.benchmark --only search --device cpu --rounds 3 --quick`.*\n\n| 1 |" in told


def test_sections_are_measured_with_the_package_of_another_checkout_around_this_one(
    counts: dict[str, int], tmp_path: Path, capsys: Any
):
    assert benchmark.main(["--only", "features", "--against", str(tmp_path / "other")]) == 0
    assert counts == {"other": 2, ROOT.name: 1, "features": 3}
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("## ")]
    assert heads == [f"## {tmp_path / 'other'}", f"## {ROOT}", f"## {tmp_path / 'other'}"]


def test_a_gpu_has_sections_of_its_own():
    assert benchmark.place("training", torch.device("cuda")) == "training on cuda"
    assert benchmark.place("training", CPU) == "training"


def test_nothing_measured_does_not_replace_what_was(counts: dict[str, int], tmp_path: Path):
    document = tmp_path / "performance.md"
    document.write_text(MARKS.format("kernel").replace("\n", "\n| of a GPU |\n"))
    assert write(document, "kernel") == {"kernel": "| of a GPU |"}


def test_a_document_without_the_section_is_refused_before_measuring(counts: dict[str, int], tmp_path: Path):
    document = tmp_path / "performance.md"
    document.write_text(MARKS.format("search"))
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--only", "search,training", "--write", str(document)])
    assert not counts


def test_an_unknown_section_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--only", "trainings"])
    assert "no section is called trainings: choose from training, gains, search" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--device", "cuda"])
    assert "finds no GPU" in capsys.readouterr().err


def test_every_section_has_its_function_and_its_place_in_a_document():
    for name, module in benchmark.MODULES.items():
        path = ROOT / "tools" / "benchmark" / f"{module}.py"
        assert f"def {name}(setting: Setting) -> str:" in path.read_text()
    found = read_sections(ROOT / "docs" / "performance.md")
    for name in set(benchmark.MODULES) - set(benchmark.ELSEWHERE):
        assert name in found or f"{name} on cuda" in found
    assert "features" in read_sections(ROOT / "docs" / "features.md")


def test_a_section_is_measured_in_a_process_of_its_own():
    setting = harness.Setting(CPU, quick=True, rounds=1)
    with harness.new_process() as process:
        text = process.submit(harness.measure_section, "kernel", "kernel", setting).result()
    assert text.startswith("not measured: this needs --device cuda")


def test_ratios_are_those_of_neighbouring_runs():
    times = harness.Times({"slow": [4.0, 10.0, 6.0], "fast": [1.0, 2.0, 3.0]}, {}, {})
    assert times.row("slow", "slow") == ["6.00 s", "1"]
    assert times.row("fast", "slow") == ["2.00 s", "**4.0** (2.0 to 5.0)"]


def test_contestants_take_turns_after_a_run_that_does_not_count():
    ran: list[str] = []
    setting = harness.Setting(CPU, quick=True, rounds=2)
    times = harness.take_turns({name: lambda name=name: ran.append(name) for name in "ab"}, setting)
    assert ran == list("ab" * 3)
    for of in (times.seconds, times.work):
        assert {name: len(seconds) for name, seconds in of.items()} == {"a": 2, "b": 2}
    assert set(times.first) == {"a", "b"}


def test_scores_that_differ_are_refused():
    mine, other = dict.fromkeys(scores.NAMES, 0.5), dict.fromkeys(scores.NAMES, 0.5)
    found = {"caption": [(mine, 1.0, 10**8)], "pycocoevalcap": [(other, 4.0, 2 * 10**8)]}
    text = scores.report(found)
    assert "| caption | 1.00 s | 1.00 s | 100 MB |" in text
    assert "The ratio is 0.25" in text
    other["CIDEr"] = 0.6
    with pytest.raises(SystemExit, match="differ"):
        scores.report(found)


class TestAgainst:
    """Two checkouts."""

    @pytest.fixture
    def slow(self, tmp_path: Path) -> Path:
        """A copy of the package whose steps take longer."""
        slow = tmp_path / "slow"
        (slow / "caption").mkdir(parents=True)
        for path in (ROOT / "caption").iterdir():
            if path.name != "__init__.py":
                (slow / "caption" / path.name).symlink_to(path)
        code = (ROOT / "caption" / "__init__.py").read_text(encoding="utf-8")
        code += "\nimport time\nfrom caption.decoders import LSTMDecoder\nproject = LSTMDecoder.project\n"
        code += "def slow(self, *args):\n    time.sleep(3)\n    return project(self, *args)\n"
        code += "import functools\nLSTMDecoder.project = functools.wraps(project)(slow)\n"
        (slow / "caption" / "__init__.py").write_text(code, encoding="utf-8")
        return slow

    @pytest.mark.slow
    def test_a_slower_checkout_is_found_out(self, slow: Path):
        text = against.compare(slow, harness.Setting(CPU, quick=True, rounds=1), region_sizes=(16,))
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n")[2:]]
        names = [f"{task}, D 16: {what}" for task in ("training step", "beam 5") for what in against.MEASURED]
        assert [row[0] for row in rows] == names
        clock, work, memory = (rows[place::3] for place in range(3))
        assert all(float(row[3].strip("*")) < 0.7 for row in clock)  # it sleeps, which takes no CPU time
        assert all(float(row[3].strip("*")) > 0.2 for row in work)
        assert [row[3] for row in memory] == ["**1.000**"] * 2

    def test_a_folder_without_the_package_is_named(self, tmp_path: Path):
        (tmp_path / "nowhere").mkdir()
        with pytest.raises(SystemExit, match=r"nowhere.*no package `caption`"):
            against.compare(tmp_path / "nowhere", harness.Setting(CPU, quick=True, rounds=1))


def test_tables_are_written_beside_the_package_of_an_older_checkout(tmp_path: Path):
    (tmp_path / "caption").mkdir()
    (tmp_path / "caption" / "__init__.py").touch()
    (tmp_path / "caption" / "errors.py").write_text("class UserError(Exception): pass\n", encoding="utf-8")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
        "import caption; from tools.benchmark.against import table\n"
        "print(caption.__file__); print(table(['a'], [['b']]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert ran.stdout == f"{tmp_path / 'caption' / '__init__.py'}\n| a |\n|---|\n| b |\n"
