"""`caption demo`: its output, and resuming it. With a tiny model, or with trainings that only write files."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from filelock import FileLock
from helpers.command_line import TINY, Ran

import caption
from caption.attention import Multinoulli, Softmax
from caption.cli import demo
from caption.errors import Stopped
from caption.runtime.files import LOCK
from caption.training.module import CaptionTraining
from caption.training.resuming import LastCheckpoint

Cli = Callable[..., Ran]
KEYS = {
    *("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr", "ROUGE-L", "NLL"),
    *("pointing_accuracy", "pointing_chance", "attention_entropy", "train_seconds", "attention", "signature"),
}
QUIET = {"enable_progress_bar": False, "enable_model_summary": False}


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Replaces the configurations by tiny ones."""
    for attention in ("soft", "hard"):
        config = yaml.safe_load(TINY.format(folder="unused", shapes="unused"))
        config["trainer"] |= QUIET | {"max_epochs": 1}
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
        evaluation = SimpleNamespace(
            numbers=dict.fromkeys(demo.REPORTED, 0.5), scores=SimpleNamespace(signature="split:test")
        )
        trainer = SimpleNamespace(checkpoint_callbacks=[last], log_dir=str(logs))
        return SimpleNamespace(trainer=trainer, model=SimpleNamespace(evaluation=evaluation))

    @property
    def verbs(self) -> list[str]:
        """fit soft, test hard, ..."""
        return [
            f"{args[0]} {Path(args[args.index('-c') + 1]).stem.removeprefix('shapes_')}" for args in self.args
        ]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, lightning: None) -> Runs:
    from caption.cli import train

    runs = Runs()
    monkeypatch.setattr(train, "run", runs)
    monkeypatch.setattr(demo, "_draw", lambda own, attention: own.write_json("page.html", {}))
    return runs


def metrics(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())


def alignment(path: Path) -> object:
    return caption.load(path).decoder.attention.alignment


@pytest.mark.nightly
@pytest.mark.slow
def test_hard_starts_from_soft_and_is_scored_and_drawn(cli: Cli, configs: None, tmp_path: Path, monkeypatch):
    folder = tmp_path / "demo"
    ran = cli("demo", "--out", folder, "--attention", "hard")
    assert ran.code == 0, ran.err
    assert isinstance(alignment(folder / "soft" / "best.ckpt"), Softmax)
    assert isinstance(alignment(folder / "hard" / "best.ckpt"), Multinoulli)
    scores = metrics(folder)
    assert scores.keys() >= KEYS
    assert scores["attention"] == "hard"
    assert "hard:expectation" in scores["signature"]
    assert "split:test" in scores["signature"]
    assert all(0 <= scores[name] <= 1 for name in ("BLEU-4", "pointing_accuracy", "pointing_chance"))
    assert scores["train_seconds"] > 0
    drawn = sorted(path.name for path in (folder / "heatmaps").iterdir())
    assert drawn == ["test_000001.png", "test_000002.png"]
    files = {"page.html", "contact_sheet.png", "soft", "hard", "shapes", "captions.json"}
    assert files <= {path.name for path in folder.iterdir()}
    assert len(json.loads((folder / "captions.json").read_text())) == 8
    # Stdout has each number once, and stderr only notes.
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == [*demo.REPORTED, "train_seconds"]
    assert float(lines[0].split()[1]) == pytest.approx(scores["BLEU-1"], abs=1e-3)
    assert "Traceback" not in ran.err
    # What is trained is not trained again.
    monkeypatch.setattr(CaptionTraining, "training_step", lambda self, *batch: pytest.fail("it trains"))
    again = cli("demo", "--out", folder)
    assert again.code == 0, again.err
    assert metrics(folder)["attention"] == "soft"
    assert 0 < metrics(folder)["train_seconds"] <= scores["train_seconds"]


def test_a_demo_replaces_an_earlier_one_and_keeps_files_of_others(cli: Cli, runs: Runs, tmp_path: Path):
    folder = tmp_path / "demo"
    assert cli("demo", "--out", folder).code == 0
    notes = [folder / name for name in ("notes.txt", "heatmaps/mine.png", "heatmaps/test_000099.png")]
    for path in notes:
        path.parent.mkdir(exist_ok=True)
        path.write_text("somebody's")
    assert cli("demo", "--out", folder, "--attention", "hard").code == 0
    assert runs.verbs == ["fit soft", "test soft", "fit soft", "fit hard", "test hard"]
    hard = runs.args[3]
    assert hard[hard.index("--model.warm_start") + 1] == str(folder / "soft" / "best.ckpt")
    assert all(args[args.index("--ckpt_path") + 1] == "auto" for args in runs.args if args[0] == "fit")
    assert [path.read_text() for path in notes] == ["somebody's"] * len(notes)
    assert (metrics(folder)["attention"], metrics(folder)["train_seconds"]) == ("hard", 4)


def test_stopped_it_is_given_again(cli: Cli, runs: Runs, tmp_path: Path):
    folder = tmp_path / "demo"
    assert cli("demo", "--out", folder).code == 0
    runs.stop = "hard"
    stopped = cli("demo", "--out", folder, "--attention", "hard")
    assert (stopped.code, stopped.err.endswith("the same command continues it\n")) == (143, True)
    assert not (folder / "metrics.json").exists()
    assert cli("demo", "--out", folder, "--attention", "hard").code == 0
    assert metrics(folder)["attention"] == "hard"


@pytest.mark.parametrize("made", [False, True], ids=["in a folder of others", "in a demo"])
@pytest.mark.parametrize("name", ["metrics.json", "page.html", "heatmaps/test_000001.png"])
def test_a_file_of_the_user_stays(cli: Cli, runs: Runs, tmp_path: Path, name: str, made: bool):
    folder = tmp_path / "demo"
    assert not made or cli("demo", "--out", folder).code == 0
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("somebody's")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ran = cli("demo", "--out", folder, "--attention", "hard")
    assert (ran.code, ran.out, len(runs.args)) == (2, "", 2 * made)
    assert f"holds {name}, which this package did not write there, or which has changed since" in ran.err
    assert "--out" in ran.err
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after.items() >= before.items()


def test_two_demos_do_not_share_a_folder(cli: Cli, runs: Runs, tmp_path: Path):
    (tmp_path / "demo").mkdir()
    with FileLock(tmp_path / "demo" / LOCK):
        ran = cli("demo", "--out", tmp_path / "demo")
    assert (ran.code, ran.out, runs.args) == (2, "", [])
    assert "another process" in ran.err
