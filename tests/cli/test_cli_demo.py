"""`caption demo`: its output, and resuming it. With a tiny model, or with trainings that only write files."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from filelock import FileLock
from helpers.command_line import TINY, Cli, check_refused

import caption
from caption.attention import Multinoulli, Softmax
from caption.cli import demo
from caption.core.errors import Stopped
from caption.core.runtime.atomic_files import LOCK
from caption.training.module import CaptionTraining
from caption.training.resuming import LastCheckpoint


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Replaces the configurations by tiny ones."""
    for attention in ("soft", "hard"):
        config = yaml.safe_load(TINY.format(folder="unused", shapes="unused"))
        config["trainer"] |= {"max_epochs": 1, "enable_progress_bar": False, "enable_model_summary": False}
        if attention == "hard":
            alignment = config["model"]["decoder"]["init_args"]["attention"]["init_args"]["alignment"]
            alignment["class_path"] = "caption.attention.Multinoulli"
            config["model"]["objective"] = {"class_path": "caption.objectives.Reinforce"}
            config["model"]["warm_start"] = "unused.ckpt"
        (tmp_path / f"shapes_{attention}.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr(demo, "config_folder", lambda: tmp_path)
    monkeypatch.setattr(demo, "PICTURES", 2)


class Runs:
    """Trainings and tests that only write the files of real ones; `stop` is the attention whose training is stopped."""

    def __init__(self) -> None:
        self.args: list[list[str]] = []
        self.stop: str | None = None

    def __call__(self, args: list[str]) -> Any:
        self.args.append(args)
        folder = Path(args[args.index("--trainer.default_root_dir") + 1])
        logs = folder / "logs" / f"version_{len(self.args)}"
        logs.mkdir(parents=True)
        if args[0] == "fit" and folder.name == self.stop:
            self.stop = None
            raise Stopped(signal.SIGTERM)
        (logs / "test_captions.json").write_text("[]")
        last = LastCheckpoint(str(folder))
        last.trained_seconds = 2.0
        scores = SimpleNamespace(signature="split:test")
        evaluation = SimpleNamespace(numbers=dict.fromkeys(demo.REPORTED, 0.5), scores=scores)
        trainer = SimpleNamespace(checkpoint_callbacks=[last], log_dir=str(logs))
        return SimpleNamespace(trainer=trainer, model=SimpleNamespace(evaluation=evaluation))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, lightning: None) -> Runs:
    from caption.cli.training import command

    runs = Runs()
    monkeypatch.setattr(command, "run", runs)
    monkeypatch.setattr(demo, "_draw", lambda own, attention: own.write_json("page.html", {}))
    return runs


def metrics(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())


@pytest.mark.nightly
def test_hard_starts_from_soft_and_is_scored_and_drawn(cli: Cli, configs: None, tmp_path: Path, monkeypatch):
    folder = tmp_path / "demo"
    ran = cli("demo", "--out", folder, "--attention", "hard")
    assert ran.code == 0, ran.err
    for name, kind in (("soft", Softmax), ("hard", Multinoulli)):
        assert isinstance(caption.load(folder / name / "best.ckpt").decoder.attention.alignment, kind)
    scores = metrics(folder)
    assert scores["attention"] == "hard"
    assert "hard:expectation" in scores["signature"]
    assert all(0 <= scores[name] <= 1 for name in ("BLEU-4", "pointing_accuracy", "pointing_chance"))
    drawn = sorted(path.name for path in (folder / "heatmaps").iterdir())
    assert drawn == ["test_000001.png", "test_000002.png"]
    assert {"page.html", "contact_sheet.png"} <= {path.name for path in folder.iterdir()}
    assert len(json.loads((folder / "captions.json").read_text())) == 8
    lines = ran.out.splitlines()  # each number once
    assert [line.split()[0] for line in lines] == [*demo.REPORTED, "train_seconds"]
    assert float(lines[0].split()[1]) == pytest.approx(scores["BLEU-1"], abs=1e-3)
    # What is trained is not trained again.
    monkeypatch.setattr(CaptionTraining, "training_step", lambda self, *batch: pytest.fail("it trains"))
    again = cli("demo", "--out", folder)
    assert again.code == 0, again.err
    assert metrics(folder)["attention"] == "soft"
    assert 0 < metrics(folder)["train_seconds"] <= scores["train_seconds"]


def test_a_demo_replaces_an_earlier_one_and_continues(cli: Cli, runs: Runs, tmp_path: Path):
    folder = tmp_path / "demo"
    assert cli("demo", "--out", folder).code == 0
    notes = [folder / name for name in ("notes.txt", "heatmaps/mine.png", "heatmaps/test_000099.png")]
    for path in notes:
        path.parent.mkdir(exist_ok=True)
        path.write_text("somebody's")
    runs.stop = "hard"
    stopped = cli("demo", "--out", folder, "--attention", "hard")
    assert (stopped.code, stopped.err.endswith("the same command continues it\n")) == (143, True)
    assert not (folder / "metrics.json").exists()
    assert cli("demo", "--out", folder, "--attention", "hard").code == 0
    verbs = [(args[0], Path(args[args.index("-c") + 1]).stem.removeprefix("shapes_")) for args in runs.args]
    soft, hard = ("fit", "soft"), ("fit", "hard")
    assert verbs == [soft, ("test", "soft"), soft, hard, soft, hard, ("test", "hard")]
    of_hard = runs.args[-2]
    assert of_hard[of_hard.index("--model.warm_start") + 1] == str(folder / "soft" / "best.ckpt")
    assert all(args[args.index("--ckpt_path") + 1] == "auto" for args in runs.args if args[0] == "fit")
    assert [path.read_text() for path in notes] == ["somebody's"] * len(notes)
    assert (metrics(folder)["attention"], metrics(folder)["train_seconds"]) == ("hard", 4)


@pytest.mark.parametrize("name", ["metrics.json", "heatmaps/test_000001.png"])
def test_a_file_of_the_user_stays(cli: Cli, runs: Runs, tmp_path: Path, name: str):
    folder = tmp_path / "demo"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("somebody's")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    said = f"holds {name}, which this package did not write there"
    check_refused(cli("demo", "--out", folder, "--attention", "hard"), said, "--out")
    assert runs.args == []
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after.items() >= before.items()


def test_two_demos_do_not_share_a_folder(cli: Cli, runs: Runs, tmp_path: Path):
    (tmp_path / "demo").mkdir()
    with FileLock(tmp_path / "demo" / LOCK):
        check_refused(cli("demo", "--out", tmp_path / "demo"), "another process")
    assert runs.args == []
