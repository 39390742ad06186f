"""`caption fit`, stopped and resumed: exit codes, --ckpt_path auto, last and best, and what is left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from helpers.command_line import QUIET, SIGNALS, Cli, Trained, check_refused, finish, resume, start_command
from helpers.tiny_captioner import rewrite

from caption.cli.training import lightning_cli
from caption.core.errors import UserError
from caption.core.runtime.atomic_files import MANIFEST, is_own
from caption.models.model_zoo import model_file
from caption.training.module import CaptionTraining
from caption.training.resuming import CheckpointFile
from caption.training.run_folder import find_checkpoint

pytestmark = pytest.mark.slow
SHORT = (*QUIET, "--trainer.limit_train_batches=1", "--trainer.limit_val_batches=1")
UNLOGGED = (*SHORT, "--trainer.logger=false", "--trainer.max_epochs=1")
LONGER = ("--trainer.logger=false", "--trainer.max_epochs=3")


def weights(folder: Path, name: str = "last") -> dict[str, Any]:
    return torch.load(folder / f"{name}.ckpt", weights_only=True)["state_dict"]


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def send(monkeypatch: pytest.MonkeyPatch, number: int, step: str, epoch: int, batch: int) -> None:
    """Send this process a signal in a step."""
    original = getattr(CaptionTraining, step)

    def sending(self: CaptionTraining, batch_of_images: Any, index: int) -> Any:
        if (self.current_epoch, index) == (epoch, batch):
            os.kill(os.getpid(), number)
        return original(self, batch_of_images, index)

    monkeypatch.setattr(CaptionTraining, step, sending)


# -- exit codes ------------------------------------------------------------------------------------------------


TRAIN = ("training_step", 1, 2)


def test_a_signal_saves(cli: Cli, trained: Trained, tiny: Path, tmp_path: Path, monkeypatch):
    handlers = [signal.getsignal(each) for each in SIGNALS]
    with monkeypatch.context() as patch:
        send(patch, signal.SIGTERM, *TRAIN)
        ran = cli("fit", "-c", tiny, *QUIET)
    assert ran.code == 143
    message = ran.err.splitlines()[-1]
    assert message.startswith("caption: stopped by SIGTERM")
    assert str(tmp_path / "run" / "last.ckpt") in message
    assert "--ckpt_path auto" in message
    assert "Traceback" not in ran.err
    assert [signal.getsignal(each) for each in SIGNALS] == handlers
    ran = cli("fit", "-c", tiny, *QUIET, "--ckpt_path", "auto")
    assert ran.code == 0
    assert f"resuming from {tmp_path}/run/last.ckpt" in ran.err
    assert same(weights(tmp_path / "run"), weights(trained.folder))


def test_a_second_ctrl_c_stops_at_once(cli: Cli, tiny: Path, tmp_path: Path, monkeypatch):
    step = CaptionTraining.training_step
    after: list[int] = []

    def twice(self: CaptionTraining, batch: Any, index: int) -> Any:
        if index == 2:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            after.append(index)
        return step(self, batch, index)

    monkeypatch.setattr(CaptionTraining, "training_step", twice)
    assert (cli("fit", "-c", tiny, *QUIET).code, after) == (130, [])
    assert not (tmp_path / "run" / "last.ckpt").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_real_process_is_killed_in_its_second_epoch(cli: Cli, tiny: Path, tmp_path, number: signal.Signals):
    """With a worker, which the terminal and schedulers signal, too."""
    options = ["--data.workers=1", "--last_checkpoint.every=1 step", "--trainer.max_epochs=300", *QUIET]
    process = start_command("fit", "-c", tiny, *options, start_new_session=True)
    last, deadline = tmp_path / "run" / "last.ckpt", time.monotonic() + 120
    while time.monotonic() < deadline and not _epoch(last) >= 1:
        time.sleep(0.1)
    os.killpg(process.pid, number)
    ran = finish(process, timeout=120)
    assert ran.code == (-9 if number == signal.SIGKILL else 143), ran.err
    epochs = _epoch(last) + 1
    assert epochs >= 2
    if number == signal.SIGKILL:  # what is written does not depend on the signal
        fit = ["fit", "-c", tiny, *QUIET, "--trainer.max_epochs", epochs]
        assert cli(*fit, "--ckpt_path", "auto").code == 0
        assert cli(*fit, "--trainer.default_root_dir", tmp_path / "whole").code == 0
        assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def _epoch(path: Path) -> int:
    return torch.load(path, weights_only=True)["epoch"] if path.exists() else -1


@pytest.mark.nightly
def test_a_training_with_workers_that_fails_ends_them(cli: Cli, tiny: Path, monkeypatch: pytest.MonkeyPatch):
    """A failure in validation leaves workers of training behind, for which Python would wait at its exit."""

    def fail(*batch: Any) -> None:
        raise UserError("something fails")

    monkeypatch.setattr(CaptionTraining, "validation_step", fail)
    ran = cli("fit", "-c", tiny, "--data.workers=1", *QUIET)
    assert (ran.code, ran.err.splitlines()[-1]) == (2, "caption: something fails")
    assert not active_children()


# -- names of checkpoints --------------------------------------------------------------------------------------


def test_auto_starts_where_there_is_nothing_and_goes_on(cli: Cli, tiny: Path, tmp_path: Path):
    fit = ("fit", "-c", tiny, *SHORT, "--ckpt_path", "auto", "--trainer.max_epochs")
    ran = cli(*fit, 1)
    assert ran.code == 0
    assert "resuming" not in ran.err
    assert cli(*fit, 2).code == 0
    assert torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["global_step"] == 2
    assert {path.name for path in (tmp_path / "run" / "logs").iterdir()} == {"version_0", "version_1"}


@pytest.mark.nightly
def test_auto_takes_the_best_where_the_last_is_damaged_and_fails_if_both_are(cli: Cli, trained, copied: Path):
    (copied / "last.ckpt").write_bytes((copied / "last.ckpt").read_bytes()[:1000])
    with pytest.warns(UserWarning, match=r"last\.ckpt"):
        ran = resume(cli, trained, copied)
    assert ran.code == 0
    assert f"resuming from {copied}/best.ckpt" in ran.err
    assert same(weights(copied), weights(trained.folder))
    for name in ("last.ckpt", "best.ckpt"):
        (copied / name).write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="damaged"):
        check_refused(resume(cli, trained, copied), "damaged")
    assert (copied / "last.ckpt").read_bytes() == b"damaged"


def of_best(contents: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint knows of the best one."""
    return next(state for name, state in contents["callbacks"].items() if name.startswith("ModelCheckpoint"))


@pytest.mark.nightly
def test_a_run_that_was_moved_keeps_its_best_model(cli: Cli, trained: Trained, copied: Path):
    def never_beaten(contents: dict[str, Any]) -> None:
        state, score = of_best(contents), torch.tensor(1e9)
        state |= {"best_model_score": score, "kth_value": score}
        state["best_k_models"] = dict.fromkeys(state["best_k_models"], score)

    rewrite(copied / "last.ckpt", never_beaten)
    before = (copied / "best.ckpt").read_bytes()
    ran = resume(cli, trained, copied, "--trainer.max_epochs=3")
    assert ran.code == 0
    assert f"is {copied}/best.ckpt" in ran.err
    assert (copied / "best.ckpt").read_bytes() == before
    state = of_best(torch.load(copied / "last.ckpt", weights_only=True))
    assert (state["dirpath"], list(state["best_k_models"])) == (str(copied), [f"{copied}/best.ckpt"])


@pytest.mark.nightly
def test_checkpoints_of_the_folder_by_name(cli: Cli, tiny: Path, tmp_path: Path):
    named = {"last": str(tmp_path / "last.ckpt"), "best": str(tmp_path / "best.ckpt"), "my.ckpt": "my.ckpt"}
    assert {name: find_checkpoint(name, tmp_path, "test") for name in named} == named
    assert find_checkpoint("shapes", tmp_path, "test") == model_file("shapes") != "shapes"  # an installed one
    for verb, name, said in (
        ("test", "best", f"no checkpoint {tmp_path / 'run' / 'best.ckpt'}"),
        ("test", "auto", "best, last or a file"),
        ("fit", "hpc", "no checkpoint hpc"),
    ):
        check_refused(cli(verb, "-c", tiny, *QUIET, "--ckpt_path", name), said)


# -- a changed configuration -----------------------------------------------------------------------------------

CHANGED = {
    "seed_everything": ("0", "7"),
    "data.min_count": ("1", "2"),
    "data.transform.size": ("48", "64"),
    "data.batch_size": ("8", "4"),
    "model.decoder.init_args.hidden_size": ("12", "24"),
}


@pytest.mark.nightly
def test_what_a_resumed_run_keeps_is_said_and_recorded(cli: Cli, tiny: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        send(patch, signal.SIGTERM, *TRAIN)
        assert cli("fit", "-c", tiny, *QUIET).code == 143
    folder = tiny.parent / "run"
    before = weights(folder)
    changed = [text for name, (_, after) in CHANGED.items() for text in (f"--{name}", after)]
    options = ("--model.optimizer.init_args.lr", "1e-30", "--trainer.max_epochs", "2", "--ckpt_path", "last")
    with monkeypatch.context() as patch:
        send(patch, signal.SIGTERM, "training_step", 1, 3)
        ran = cli("fit", "-c", tiny, *QUIET, *options, *changed)
    for name, (old, new) in CHANGED.items():
        assert f"{name} stays {old}, though the configuration says {new}" in ran.err
    assert f"start a new training: --model.warm_start {folder / 'last.ckpt'}" in ran.err
    record = yaml.safe_load((folder / "logs" / "version_1" / "config.yaml").read_text())
    for name, (old, _) in CHANGED.items():
        value: Any = record
        for key in name.split("."):
            value = value[key]
        assert str(value) == old
    assert float(record["model"]["optimizer"]["init_args"]["lr"]) == 1e-30
    decoder = [name for name in before if "decoder" in name and before[name].is_floating_point()]
    assert all(torch.allclose(weights(folder)[name], before[name], atol=1e-20) for name in decoder)
    ran = cli("fit", "-c", tiny, *QUIET, "--ckpt_path", "last")
    assert "stays" not in ran.err


def test_after_a_whole_epoch_the_batch_size_may_change(cli: Cli, trained: Trained, copied: Path):
    """A later resume inside an epoch goes on with the batches in which its place is counted."""
    where = ("--trainer.default_root_dir", copied, "--ckpt_path", "last", "--trainer.max_epochs", 3)
    changed = ("--data.batch_size", 20, "--data.min_count", 2)
    ran = cli("fit", "-c", trained.config, *QUIET, *where, *changed)
    assert ran.code == 0, ran.err
    assert ("data.min_count stays 1" in ran.err, "data.batch_size" in ran.err) == (True, False)
    contents = torch.load(copied / "last.ckpt", weights_only=True)
    assert contents["global_step"] == 2 * 5 + 2
    assert [contents["options"][f"data.{name}"] for name in ("batch_size", "min_count")] == ["20", "1"]


# -- what is left alone in the run's folder ---------------------------------------------------------------------


@pytest.mark.nightly
def test_the_users_configuration_in_the_runs_folder_stays(cli: Cli, tiny: Path, tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    own = run / "config.yaml"
    own.write_text(f"# mine\n{tiny.read_text()}")
    before = own.read_bytes()
    command = ("fit", "-c", own, "--trainer.default_root_dir", run, *UNLOGGED)
    assert cli(*command).code == 0
    assert own.read_bytes() == before
    dumped = run / "config-2.yaml"
    assert yaml.safe_load(dumped.read_text())["data"]["batch_size"] == 8
    first = dumped.read_bytes()
    assert cli(*command, "--ckpt_path", "auto").code == 0  # another command: it resumes
    assert cli(*command, "--ckpt_path", "auto").code == 0
    assert (own.read_bytes(), dumped.read_bytes()) == (before, first)
    assert {path.name for path in run.glob("*.yaml")} == {"config-2.yaml", "config-3.yaml", "config.yaml"}


@pytest.mark.nightly
def test_the_users_results_are_named_before_the_evaluation(cli: Cli, trained: Trained, tmp_path, monkeypatch):
    names = ("test_captions.json", "test_references.json", "test_scores.json")
    where = ("--ckpt_path", trained.folder / "best.ckpt", "--trainer.default_root_dir", tmp_path)
    command = ("test", "-c", trained.config, *QUIET, "--trainer.logger=false", *where)
    (tmp_path / names[-1]).write_text("[]")
    with monkeypatch.context() as patch:
        patch.setattr(CaptionTraining, "test_step", lambda *batch: pytest.fail("it evaluates"))
        check_refused(cli(*command), f"holds {names[-1]}, which this package did not write there")
    assert (tmp_path / names[-1]).read_text() == "[]"
    (tmp_path / names[-1]).unlink()
    for _ in range(2):  # its own results are replaced
        assert cli(*command).code == 0
    assert all(json.loads((tmp_path / name).read_text()) for name in names)
    assert (tmp_path / MANIFEST).exists()


def test_logs_that_a_link_would_lead_elsewhere_are_refused(cli: Cli, tiny: Path, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "logs").symlink_to(tmp_path / "elsewhere")
    check_refused(cli("fit", "-c", tiny, *QUIET), "logs' is a link, and logs would be written where it leads")
    assert not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.nightly
def test_checkpoints_of_another_origin_are_named_before_training(cli: Cli, trained: Trained, copied: Path):
    best, last = copied / "best.ckpt", (copied / "last.ckpt").read_bytes()
    said = "holds best.ckpt that training has not written: move it away"
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
    check_refused(cli("fit", "-c", tiny, *UNLOGGED), *said)
    assert not list((tmp_path / "run").glob("*.ckpt"))  # before training
    assert (elsewhere / "last.ckpt" / "mine").read_text() == "mine"
    monkeypatch.setattr(lightning_cli, "check_free", lambda *_: None)  # as if it came later
    check_refused(
        cli("fit", "-c", tiny, *UNLOGGED),
        f"{elsewhere}/last.ckpt exists, and this package did not write it",
    )
    assert (elsewhere / "last.ckpt" / "mine").read_text() == "mine"


def test_the_worse_of_its_own_checkpoints_is_deleted(cli: Cli, tiny: Path, tmp_path: Path):
    names = ("--checkpoint.filename={epoch}", "--checkpoint.monitor=null", "--checkpoint.save_last=true")
    assert cli("fit", "-c", tiny, *UNLOGGED, "--trainer.max_epochs=2", *names).code == 0
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
    with pytest.raises(UserError, match=r"mine\.ckpt exists, and this package did not write it"):
        writer.save_checkpoint({"x": torch.ones(3)}, mine)
    for each in (path, mine, tmp_path / "folder.ckpt", tmp_path / "nowhere.ckpt"):
        writer.remove_checkpoint(each)
    assert not path.exists()
    assert mine.read_bytes() == before
    assert (tmp_path / "folder.ckpt").is_dir()
