"""`caption demo`: its output, and resuming it. With a tiny model, or with trainings that only write files."""

from __future__ import annotations

import json
import os
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
from caption.runtime import files
from caption.runtime.files import MARK
from caption.runtime.lock import LOCK
from caption.runtime.own_folder import OwnFolder
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
        config["trainer"] |= QUIET
        if attention == "hard":
            alignment = config["model"]["decoder"]["init_args"]["attention"]["init_args"]["alignment"]
            alignment["class_path"] = "caption.attention.Multinoulli"
            config["model"]["objective"] = {"class_path": "caption.objectives.Reinforce"}
            config["model"]["warm_start"] = "unused.ckpt"
        (tmp_path / f"shapes_{attention}.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr(demo, "config_folder", lambda: tmp_path)
    monkeypatch.setattr(demo, "PICTURES", 2)


class Runs:
    """Trainings and tests that only write the files of real ones.

    Attributes:
        args: the command lines so far.
        resumed: for each training, whether there was a checkpoint to go on from.
        stop: the attention whose next training is stopped by Ctrl-C; last.ckpt is then there, best.ckpt is not.
    """

    def __init__(self) -> None:
        self.args: list[list[str]] = []
        self.resumed: list[bool] = []
        self.stop: str | None = None

    def __call__(self, args: list[str]) -> Any:
        self.args.append(args)
        verb, attention = self.verbs[-1].split()
        folder = Path(args[args.index("--trainer.default_root_dir") + 1])
        logs = folder / "logs" / f"version_{len(self.args)}"
        logs.mkdir(parents=True)
        if verb == "fit":
            self.resumed.append((folder / "last.ckpt").exists())
            (folder / "last.ckpt").write_text(attention)
            if attention == self.stop:
                self.stop = None
                raise KeyboardInterrupt
            (folder / "best.ckpt").write_text(f"{attention}, run {len(self.args)}")
        else:
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
    monkeypatch.setattr(demo, "_draw", lambda own: own.write_json("page.html", {}))
    return runs


def metrics(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())


def alignment(path: Path) -> object:
    return caption.load(path).decoder.attention.alignment


# -- a whole demo ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hard_starts_from_soft_and_is_scored_and_drawn(cli: Cli, configs: None, tmp_path: Path):
    folder = tmp_path / "demo"
    ran = cli("demo", "--out", folder, "--attention", "hard")
    assert ran.code == 0, ran.err
    assert isinstance(alignment(folder / "soft" / "best.ckpt"), Softmax)
    assert isinstance(alignment(folder / "best.ckpt"), Multinoulli)
    scores = metrics(folder)
    assert scores.keys() >= KEYS
    assert scores["attention"] == "hard"
    assert "hard:expectation" in scores["signature"]
    assert "split:test" in scores["signature"]
    assert all(0 <= scores[name] <= 1 for name in ("BLEU-4", "pointing_accuracy", "pointing_chance"))
    states = [json.loads((path / demo.STATE).read_text()) for path in (folder, folder / "soft")]
    assert all(state["train_seconds"] > 0 for state in states)
    assert scores["train_seconds"] == pytest.approx(sum(state["train_seconds"] for state in states), abs=0.1)
    assert not (folder / "soft" / "shapes").exists()  # one dataset for both
    drawn = sorted(path.name for path in (folder / "heatmaps").iterdir())
    assert drawn == ["test_000001.png", "test_000002.png"]
    files = {"page.html", "contact_sheet.png", "best.ckpt", "last.ckpt", "logs", "shapes", "captions.json"}
    assert files <= {path.name for path in folder.iterdir()}
    assert len(json.loads((folder / "captions.json").read_text())) == 8
    # Stdout has each number once, and stderr only notes.
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == [*demo.REPORTED, "train_seconds"]
    assert float(lines[0].split()[1]) == pytest.approx(scores["BLEU-1"], abs=1e-3)
    assert "Traceback" not in ran.err


def test_hard_goes_on_from_a_soft_demo(cli: Cli, runs: Runs, tmp_path: Path):
    folder = tmp_path / "demo"
    assert cli("demo", "--out", folder).code == 0
    soft, model = metrics(folder), (folder / "best.ckpt").read_bytes()
    assert cli("demo", "--out", folder, "--attention", "hard").code == 0
    assert runs.verbs == ["fit soft", "test soft", "fit hard", "test hard"]
    assert runs.args[2][runs.args[2].index("--model.warm_start") + 1] == str(folder / "soft" / "best.ckpt")
    assert (folder / "soft" / "best.ckpt").read_bytes() == model
    assert metrics(folder / "soft") == soft
    assert metrics(folder)["attention"] == "hard"
    assert metrics(folder)["train_seconds"] == 4
    assert (folder / "soft" / "page.html").exists()


def test_a_finished_demo_starts_again_and_keeps_files_of_others(cli: Cli, runs: Runs, tmp_path: Path):
    folder = tmp_path / "demo"
    assert cli("demo", "--out", folder).code == 0
    names = (
        "notes.txt",
        "logs/notes.txt",
        "logs/version_1/notes.txt",
        "heatmaps/mine.png",
        "heatmaps/test_000099.png",
    )
    notes = [folder / name for name in names]
    for path in notes:
        path.parent.mkdir(exist_ok=True)
        path.write_text("somebody's")
    assert cli("demo", "--out", folder).code == 0
    assert runs.verbs == ["fit soft", "test soft"] * 2
    assert [path.read_text() for path in notes] == ["somebody's"] * len(notes)
    assert (folder / "best.ckpt").read_text() == "soft, run 3"


# -- interrupted -----------------------------------------------------------------------------------------------


def test_stopped_it_is_resumed(cli: Cli, runs: Runs, tmp_path: Path):
    folder = tmp_path / "demo"
    runs.stop = "soft"
    assert cli("demo", "--out", folder).code == 130
    assert not (folder / "metrics.json").exists()
    assert not json.loads((folder / demo.STATE).read_text())["trained"]
    assert cli("demo", "--out", folder).code == 0
    assert runs.verbs == ["fit soft", "fit soft", "test soft"]
    assert runs.resumed == [False, True]
    assert runs.args[1][runs.args[1].index("--ckpt_path") + 1] == "auto"


def test_stopped_in_hard_attention_soft_is_not_trained_again(cli: Cli, runs: Runs, tmp_path: Path):
    folder = tmp_path / "demo"
    runs.stop = "hard"
    assert cli("demo", "--out", folder, "--attention", "hard").code == 130
    assert cli("demo", "--out", folder, "--attention", "hard").code == 0
    assert runs.verbs == ["fit soft", "fit hard", "fit hard", "test hard"]
    assert metrics(folder)["attention"] == "hard"


def test_stopped_after_training_nothing_is_trained_again(cli: Cli, runs: Runs, tmp_path: Path, monkeypatch):
    folder = tmp_path / "demo"
    with monkeypatch.context() as patch:
        patch.setattr(demo, "_draw", lambda own: (_ for _ in ()).throw(KeyboardInterrupt))
        assert cli("demo", "--out", folder).code == 130
    assert cli("demo", "--out", folder).code == 0
    assert runs.verbs == ["fit soft", "test soft", "test soft"]
    assert metrics(folder)["train_seconds"] == 2


def test_another_attention_does_not_go_on_with_the_wrong_model(cli: Cli, runs: Runs, tmp_path: Path):
    folder = tmp_path / "demo"
    runs.stop = "hard"
    assert cli("demo", "--out", folder, "--attention", "hard").code == 130
    assert cli("demo", "--out", folder).code == 0
    assert runs.verbs == ["fit soft", "fit hard", "fit soft", "test soft"]
    assert runs.resumed == [False, False, False]
    assert (folder / "best.ckpt").read_text() == "soft, run 3"
    assert metrics(folder)["attention"] == "soft"


@pytest.mark.nightly
def test_sigterm_is_not_the_end_of_training(cli: Cli, configs: None, tmp_path: Path, monkeypatch):
    folder = tmp_path / "demo"
    step = CaptionTraining.training_step

    def stop(self: CaptionTraining, batch: Any, index: int) -> Any:
        if (self.current_epoch, index) == (1, 2):
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(CaptionTraining, "training_step", stop)
        ran = cli("demo", "--out", folder)
    assert (ran.code, ran.out) == (143, "")
    assert ran.err.splitlines()[-1].endswith("the same command continues it")
    assert not (folder / "metrics.json").exists()
    assert not json.loads((folder / demo.STATE).read_text())["trained"]
    steps: list[int] = []
    monkeypatch.setattr(
        CaptionTraining, "on_train_batch_end", lambda self, *args: steps.append(self.global_step)
    )
    assert cli("demo", "--out", folder).code == 0
    assert steps == [9, 10]


# -- files of others -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metrics.json", "best.ckpt", "page.html", "soft/best.ckpt"])
def test_a_folder_of_others_is_left_alone(cli: Cli, runs: Runs, tmp_path: Path, name: str):
    folder = tmp_path / "mine"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("somebody's")
    (folder / "logs").mkdir()
    ran = cli("demo", "--out", folder, "--attention", "hard")
    assert (ran.code, ran.out, runs.args) == (2, "", [])
    assert "which this package did not write there" in ran.err
    assert "--out" in ran.err
    assert (folder / name).read_text() == "somebody's"


@pytest.mark.parametrize("attention", ["soft", "hard"])
@pytest.mark.parametrize("name", ["page.html", "best.ckpt", "heatmaps/test_000001.png", "demo.json"])
def test_what_was_changed_or_put_into_a_demo_stays(
    cli: Cli, runs: Runs, tmp_path: Path, name: str, attention: str
):
    folder = tmp_path / "demo"
    assert cli("demo", "--out", folder).code == 0
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("somebody's")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ran = cli("demo", "--out", folder, "--attention", attention)
    assert (ran.code, ran.out, len(runs.args)) == (2, "", 2)
    assert f"holds {name}, which this package did not write there, or which has changed since" in ran.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.nightly
@pytest.mark.parametrize("survived", range(8))
def test_killed_while_the_soft_demo_is_moved_aside(
    cli: Cli, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
):
    folder, left = tmp_path / "demo", survived
    assert cli("demo", "--out", folder).code == 0

    def killed(change: Callable[..., None]) -> Callable[..., None]:
        def counted(*args: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            change(*args)

        return counted

    with monkeypatch.context() as patch:
        for name in ("_put_new", "delete"):
            patch.setattr(files, name, killed(getattr(files, name)))
        assert cli("demo", "--out", folder, "--attention", "hard").code == 130
    assert cli("demo", "--out", folder, "--attention", "hard").code == 0
    assert runs.verbs == ["fit soft", "test soft", "fit hard", "test hard"]
    assert (folder / "soft" / "best.ckpt").read_text() == "soft, run 1"
    assert metrics(folder / "soft")["attention"] == "soft"
    assert metrics(folder)["attention"] == "hard"


@pytest.mark.nightly
def test_a_killed_training_knows_its_checkpoints(cli: Cli, runs: Runs, tmp_path: Path, monkeypatch):
    """They were not listed; a file without the mark of this package is somebody's."""
    folder = tmp_path / "demo"
    runs.stop = "hard"
    with monkeypatch.context() as patch:
        patch.setattr(OwnFolder, "add", lambda self, names: None)
        assert cli("demo", "--out", folder, "--attention", "hard").code == 130
    (folder / "soft" / "best.ckpt").write_text("soft, run 1")
    assert cli("demo", "--out", folder).code == 2
    assert (folder / "last.ckpt").read_text() == "hard"
    (folder / "last.ckpt").write_text(MARK)
    assert cli("demo", "--out", folder).code == 0
    assert runs.verbs == ["fit soft", "fit hard", "fit soft", "test soft"]


def test_two_demos_do_not_share_a_folder(cli: Cli, runs: Runs, tmp_path: Path):
    (tmp_path / "demo").mkdir()
    with FileLock(tmp_path / "demo" / LOCK):
        ran = cli("demo", "--out", tmp_path / "demo")
    assert (ran.code, ran.out, runs.args) == (2, "", [])
    assert "another process" in ran.err
