"""The share of seeds that learn to point: which runs count, the table, and the file beside the document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caption.errors import UserError
from tools import seeds
from tools.compare_attention import __main__ as compare_attention
from tools.compare_attention.mechanisms import Mechanism, read_mechanisms
from tools.compare_attention.runs import Bench
from tools.documents import read_sections
from tools.reproduce.runs import CONFIGS

TEMPERATURE = ["--attention_temperature.start", "1"]


def general() -> Mechanism:
    return read_mechanisms(CONFIGS / "attention", CONFIGS / "shapes_soft.yaml")["general"]


def pretend(folder: Path, seed: int, pointing: float, digest: str) -> None:
    """Write what a run of `tools.compare_attention` leaves."""
    numbers = dict.fromkeys(seeds.KEPT, 0.25) | {"pointing_accuracy": pointing, "BLEU-4": 1.0}
    run = folder / f"general-{seed}"
    run.mkdir(parents=True)
    (run / "result.json").write_text(json.dumps({"digest": digest, "numbers": numbers}))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "seeds.md"
    path.write_text("Before.\n\n<!-- section seeds begins -->\n<!-- section seeds ends -->\n\nAfter.\n")
    return path


def test_runs_of_the_present_settings_are_counted_and_kept(tmp_path: Path, document: Path) -> None:
    digest = general().digest([])
    for seed, pointing in enumerate((0.9, 0.04, 0.5)):
        pretend(tmp_path / "runs", seed, pointing, digest)
    pretend(tmp_path / "runs", 3, 0.99, "of other settings")
    pretend(tmp_path / "without", 10, 0.1, general().digest(TEMPERATURE))
    common = ["--document", str(document), "--names", "--write", "--out"]
    assert seeds.main([*common, str(tmp_path / "without"), "--seeds", "10", *TEMPERATURE]) == 0
    assert seeds.main([*common, str(tmp_path / "runs")]) == 0
    section = read_sections(document)["seeds"]
    assert "| `general` | 2 of 3 | 0.04, 0.50, 0.90 | 0.25 (0.25 to 0.25) |" in section
    assert "| `general`, `--attention_temperature.start 1` | 0 of 1 | 0.10 |" in section
    assert document.read_text().startswith("Before.")
    kept = json.loads(document.with_suffix(".json").read_text())
    assert set(kept["general"]) == {"0", "1", "2"}
    # Without the folder the file is enough.
    assert seeds.main([*common, str(tmp_path / "nothing")]) == 0
    assert read_sections(document)["seeds"] == section


def test_known_runs_of_other_settings_are_dropped(tmp_path: Path, document: Path) -> None:
    old = dict.fromkeys(seeds.KEPT, 0.5) | {"digest": "of other settings"}
    rows = {
        "general": {"0": old, "1": old},
        "general --attention_temperature.start 1": {"0": old},
        "gone": {"0": old},
    }
    document.with_suffix(".json").write_text(json.dumps(rows))
    pretend(tmp_path / "runs", 1, 0.75, general().digest([]))
    out = ["--out", str(tmp_path / "runs")]
    assert seeds.main(["--document", str(document), "--names", "--write", *out]) == 0
    kept = json.loads(document.with_suffix(".json").read_text())
    assert {row: [*runs] for row, runs in kept.items()} == {"general": ["1"]}


def test_what_another_command_wrote_meanwhile_is_kept(
    tmp_path: Path, document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = document.with_suffix(".json")
    other = dict.fromkeys(seeds.KEPT, 0.5) | {"digest": general().digest([])}

    def train(*_: object) -> int:
        numbers.write_text(json.dumps({"general": {"10": other}}))
        pretend(tmp_path / "runs", 2, 0.75, general().digest([]))
        return 0

    monkeypatch.setattr(seeds, "train", train)
    out = ["--out", str(tmp_path / "runs")]
    assert seeds.main(["--document", str(document), "--names", "general", "--write", *out]) == 0
    assert [*json.loads(numbers.read_text())["general"]] == ["2", "10"]


def test_an_unknown_mechanism_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert seeds.main(["--names", "nothing", "--out", str(tmp_path)]) == 2
    assert "no mechanism is called nothing" in capsys.readouterr().err


def test_published_runs_are_not_repeated(
    tmp_path: Path, document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    def run(bench: Bench, mechanism: Mechanism, seed: int) -> None:
        trained.append((mechanism.name, seed))

    monkeypatch.setattr(Bench, "run", run)
    known = dict.fromkeys(seeds.KEPT, 0.5) | {"digest": general().digest([])}
    document.with_suffix(".json").write_text(json.dumps({"general": {"0": known, "2": known}}))
    pretend(tmp_path, 2, 0.99, "of other settings")
    common = ["--document", str(document), "--out", str(tmp_path)]
    assert seeds.main([*common, "--names", "general", "--seeds", "0", "1", "2"]) == 0
    assert trained == [("general", 1)]
    # Of other arguments nothing is published.
    assert seeds.main([*common, "--names", "general", "--seeds", "0", *TEMPERATURE]) == 0
    assert trained[1:] == [("general", 0)]


def test_the_folder_is_that_of_the_comparison_from_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []

    def train(bench: Bench, *_: object) -> None:
        folders.append(bench.folder)
        raise UserError("seen enough")

    for tool in (seeds, compare_attention):
        monkeypatch.setattr(tool, "train", train)
    assert seeds.main(["--names"]) == compare_attention.main(["--pixels", "--names"]) == 2
    assert folders == [Path("runs/compare_pixels")] * 2
