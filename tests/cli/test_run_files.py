"""What the training verbs write into a run's folder, and what they leave alone there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from helpers.command_line import QUIET, Cli, Trained, check_refused, resume

from caption.cli import train
from caption.errors import UserError
from caption.runtime.files import LIST, is_own
from caption.training.module import CaptionTraining
from caption.training.resuming import CheckpointFile

UNLOGGED = (*QUIET, "--trainer.logger=false", "--trainer.limit_val_batches=1")
LONGER = ("--trainer.logger=false", "--trainer.max_epochs=3")
SHORT = (*UNLOGGED, "--trainer.max_epochs=1", "--trainer.limit_train_batches=1")


# -- the configuration -----------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_users_configuration_in_the_runs_folder_stays(cli: Cli, tiny: Path, tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    own = run / "config.yaml"
    own.write_text(f"# mine\n{tiny.read_text()}")
    before = own.read_bytes()
    command = ("fit", "-c", own, "--trainer.default_root_dir", run, *SHORT)
    assert cli(*command).code == 0
    assert own.read_bytes() == before
    dumped = run / "config-2.yaml"
    assert yaml.safe_load(dumped.read_text())["data"]["batch_size"] == 8
    first = dumped.read_bytes()
    assert cli(*command, "--ckpt_path", "auto").code == 0  # another command: it resumes
    assert cli(*command, "--ckpt_path", "auto").code == 0
    assert (own.read_bytes(), dumped.read_bytes()) == (before, first)
    assert {path.name for path in run.glob("*.yaml")} == {"config-2.yaml", "config-3.yaml", "config.yaml"}


# -- results of evaluations ------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_users_results_are_named_before_the_evaluation(cli: Cli, trained: Trained, tmp_path, monkeypatch):
    names = ("test_captions.json", "test_references.json", "test_scores.json")
    where = ("--ckpt_path", trained.folder / "best.ckpt", "--trainer.default_root_dir", tmp_path)
    command = ("test", "-c", trained.config, *UNLOGGED, "--trainer.limit_test_batches=1", *where)
    (tmp_path / names[-1]).write_text("[]")
    with monkeypatch.context() as patch:
        patch.setattr(CaptionTraining, "test_step", lambda *batch: pytest.fail("it evaluates"))
        check_refused(cli(*command), f"holds {names[-1]}, which this package did not write there")
    assert (tmp_path / names[-1]).read_text() == "[]"
    (tmp_path / names[-1]).unlink()
    for _ in range(2):  # its own results are replaced
        assert cli(*command).code == 0
    assert all(json.loads((tmp_path / name).read_text()) for name in names)
    assert (tmp_path / LIST).exists()


def test_logs_that_a_link_would_lead_elsewhere_are_refused(cli: Cli, tiny: Path, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "logs").symlink_to(tmp_path / "elsewhere")
    said = "logs' is a link, and logs would be written where it leads"
    check_refused(cli("fit", "-c", tiny, *QUIET), said)
    assert not [*(tmp_path / "elsewhere").iterdir()]


# -- checkpoints -----------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_checkpoints_of_another_origin_are_named_before_training(cli: Cli, trained: Trained, copied: Path):
    best, last = copied / "best.ckpt", (copied / "last.ckpt").read_bytes()
    said = "holds best.ckpt that training has not written, or that has changed since: move it away"
    best.write_text("mine")
    check_refused(resume(cli, trained, copied, *LONGER), said)
    assert best.read_text() == "mine"
    best.unlink()
    best.mkdir()
    (best / "mine").touch()
    check_refused(resume(cli, trained, copied, *LONGER), said)
    assert (best / "mine").exists()
    shutil.rmtree(best)
    best.symlink_to("nowhere")
    check_refused(resume(cli, trained, copied, *LONGER), said)
    assert best.is_symlink()
    assert (copied / "last.ckpt").read_bytes() == last


@pytest.mark.nightly
def test_a_linked_checkpoint_is_resumed(cli: Cli, trained: Trained, copied: Path, tmp_path: Path):
    target = tmp_path / "disk" / "some.ckpt"
    target.parent.mkdir()
    shutil.move(copied / "last.ckpt", target)
    (copied / "last.ckpt").symlink_to(target)
    before = target.read_bytes()
    ran = resume(cli, trained, copied, *LONGER)
    assert (ran.code, "resuming from" in ran.err) == (0, True)
    assert target.read_bytes() == before
    assert not (copied / "last.ckpt").is_symlink()
    assert torch.load(copied / "last.ckpt", weights_only=True)["epoch"] == 2


@pytest.mark.nightly
def test_lightning_does_not_clear_a_folder_for_its_link(cli: Cli, tiny: Path, tmp_path: Path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "last.ckpt").mkdir(parents=True)
    (elsewhere / "last.ckpt" / "mine").write_text("mine")
    options = {"dirpath": str(elsewhere), "save_last": "link", "enable_version_counter": False}
    config = yaml.safe_load(tiny.read_text())
    callback = {"class_path": "pytorch_lightning.callbacks.ModelCheckpoint", "init_args": options}
    config["trainer"]["callbacks"] = [callback]
    tiny.write_text(yaml.safe_dump(config))
    said = (f"{elsewhere} holds last.ckpt", "with dirpath of its ModelCheckpoint")
    check_refused(cli("fit", "-c", tiny, *SHORT), *said)
    assert not list((tmp_path / "run").glob("*.ckpt"))  # before training
    assert (elsewhere / "last.ckpt" / "mine").read_text() == "mine"
    monkeypatch.setattr(train, "check_free", lambda *_: None)  # as if it came later
    check_refused(cli("fit", "-c", tiny, *SHORT), f"the result is in {elsewhere}/last-2.ckpt")
    assert (elsewhere / "last.ckpt" / "mine").read_text() == "mine"


def test_the_worse_of_its_own_checkpoints_is_deleted(cli: Cli, tiny: Path, tmp_path: Path):
    names = ("--checkpoint.filename={epoch}", "--checkpoint.monitor=null", "--checkpoint.save_last=true")
    assert cli("fit", "-c", tiny, *SHORT, "--trainer.max_epochs=2", *names).code == 0
    assert {path.name for path in (tmp_path / "run").glob("*.ckpt")} == {"epoch=1.ckpt", "last.ckpt"}


def test_only_own_checkpoints_are_replaced_and_removed(tmp_path: Path):
    writer = CheckpointFile()
    path, mine = tmp_path / "sub" / "a" / "best.ckpt", tmp_path / "mine.ckpt"
    writer.save_checkpoint({"x": torch.zeros(3)}, path)
    writer.save_checkpoint({"x": torch.ones(3)}, path)
    assert is_own(path)
    torch.save({"x": torch.zeros(3)}, mine)
    (tmp_path / "folder.ckpt").mkdir()
    before = mine.read_bytes()
    with pytest.raises(UserError, match=r"the result is in .*mine-2\.ckpt"):
        writer.save_checkpoint({"x": torch.ones(3)}, mine)
    for each in (path, mine, tmp_path / "folder.ckpt", tmp_path / "nowhere.ckpt"):
        writer.remove_checkpoint(each)
    assert not path.exists()
    assert mine.read_bytes() == before
    assert (tmp_path / "folder.ckpt").is_dir()
