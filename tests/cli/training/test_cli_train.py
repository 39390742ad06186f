"""`caption fit | validate | test | predict`: their output, messages and errors."""

from __future__ import annotations

import csv
import json
import logging
import math
import shlex
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import rich
import torch
import yaml
from filelock import FileLock
from helpers.command_line import QUIET, Cli, Trained, check_refused, resume
from pycocotools.coco import COCO

import caption
from caption.cli.training.quiet import UNINFORMATIVE
from caption.core.errors import UserError
from caption.core.runtime.atomic_files import LOCK, is_own
from caption.data.module import CaptionData
from caption.training.run_results import read_run
from caption.training.watched import AUTO, mode_of


def progress(path: Path) -> tuple[int, int]:
    contents = torch.load(path, weights_only=True)
    return contents["epoch"] + 1, contents["global_step"]


def metrics(logs: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((logs / "metrics.csv").open()))


NOISE = ("litlogger", "TPU", "dirpath", "many workers", "GPU available", "Seed set", "max_epochs")


# -- fit -------------------------------------------------------------------------------------------------------


def test_fit_leaves_a_best_and_a_last_model_and_logs_and_says_little(trained: Trained):
    logs, best = trained.folder / "logs" / "version_0", trained.folder / "best.ckpt"
    visible = {path.name for path in trained.folder.iterdir() if not path.name.startswith(".")}
    assert visible == {"best.ckpt", "last.ckpt", "logs"}
    assert list(logs.glob("events.out.tfevents.*"))
    rows = metrics(logs)
    names = {name for row in rows for name, value in row.items() if value}
    assert {"train/loss", "train/NLL", "val/NLL", "val/BLEU-4", "val/CIDEr", "val/pointing_accuracy"} <= names
    assert [row["epoch"] for row in rows if row["val/CIDEr"]] == ["0", "1"]
    assert all(math.isfinite(float(value)) for row in rows for value in row.values() if value)
    assert progress(trained.folder / "last.ckpt") == (2, 10)
    for path in trained.folder.glob("*.ckpt"):
        assert caption.load(path).search.beam_size == 2
        assert is_own(path)
    config = yaml.safe_load((logs / "config.yaml").read_text())
    assert (config["data"]["batch_size"], config["seed_everything"]) == (8, 0)
    for section in ("checkpoint", "early_stopping"):
        assert (config[section]["monitor"], config[section]["mode"]) == ("val/CIDEr", "max")
    ran = trained.ran
    assert ran.out == ""
    for noise in (*NOISE, "Warning", "is deprecated", "pin_memory", "Traceback"):
        assert noise not in ran.err
    score = max(float(row["val/CIDEr"]) for row in rows if row["val/CIDEr"])
    head, first, second, *end = ran.err.splitlines()
    assert [line.split()[0] for line in (head, first, second)] == ["epoch", "1", "2"]
    assert end == [
        f"caption fit: the best model, val/CIDEr {score:.4f}, is {best}. Next:",
        f"  caption describe PHOTO --model {best}",
    ]


@pytest.mark.parametrize(
    "message",
    [
        "Restoring states from the checkpoint path at run/last.ckpt",
        "Restored all states from the checkpoint at run/last.ckpt",
        "GPU available: True (cuda), used: True",
        "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0]",
        "Using bfloat16 Automatic Mixed Precision (AMP)",
    ],
)
def test_messages_of_lightning_that_repeat_what_is_known_are_hidden(message: str):
    assert UNINFORMATIVE.match(message)
    assert not UNINFORMATIVE.match("`Trainer.fit` stopped: `max_steps=3` reached.")


@pytest.mark.slow
def test_captions_and_the_model_summary_are_shown_on_request(cli: Cli, tiny: Path):
    asked = ("--epoch_report.samples", 2, "--trainer.enable_model_summary", "true", "--trainer.max_epochs", 1)
    ran = cli("fit", "-c", tiny, *asked, "--trainer.limit_train_batches", 1, "--attention_figures.images", 0)
    assert (ran.code, ran.out) == (0, "")
    assert "captioner" in ran.err
    assert [line for line in ran.err.splitlines() if line.startswith("  1000002: ")]
    assert "  1000003: " not in ran.err


@pytest.mark.nightly
def test_a_trial_of_a_few_steps(cli: Cli, tiny: Path):
    for trial in ("--trainer.fast_dev_run=1", "--trainer.limit_val_batches=0"):
        assert cli("fit", "-c", tiny, *QUIET, trial, "--trainer.max_epochs", 1)[:2] == (0, "")


def test_a_start_that_no_epoch_improves_is_said(cli: Cli, tiny: Path, trained: Trained):
    options = (
        "--attention_figures.images=0",
        "--checkpoint.monitor=val/NLL",
        "--model.optimizer.init_args.lr=0.8",
    )
    ran = cli("fit", "-c", tiny, *options, "--model.warm_start", trained.folder / "last.ckpt")
    assert ran.code == 0, ran.err
    assert "the model that training started from is better, val/NLL" in ran.err


def test_the_direction_of_what_is_watched():
    assert (mode_of("val/NLL", AUTO, "--x"), mode_of("val/CIDEr", AUTO, "--x")) == ("min", "max")
    assert mode_of("mine", "min", "--x") == "min"
    for metric, mode, said in (
        ("mine", AUTO, "needs --x.mode min or max"),
        ("val/NLL", "max", "better when it is lower"),
        ("val/attention_entropy", AUTO, "neither good nor bad"),
        ("val/NL", "min", r"training has no such metric \(did you mean val/NLL\?\)"),
    ):
        with pytest.raises(UserError, match=said):
            mode_of(metric, mode, "--x")


PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--early_stopping.mode min", "val/CIDEr is better when it is higher, so --early_stopping.mode"),
        (
            "--trainer.callbacks+=ModelCheckpoint --trainer.callbacks.monitor=val/CIDEr",
            "ModelCheckpoint.mode min",
        ),
        (
            f"--checkpoint.monitor val/NLL --model.scheduler {PLATEAU} --model.scheduler.init_args.mode max",
            "better when it is lower",
        ),
    ],
)
def test_what_is_watched_is_refused_before_the_first_step(cli: Cli, tiny: Path, options: str, message: str):
    check_refused(cli("fit", "-c", tiny, *QUIET, *options.split()), message)
    assert not (tiny.parent / "run" / "best.ckpt").exists()


WATCHED = {
    "val/NLL": "--checkpoint.monitor val/NLL --model.optimizer.lr 0.5",
    "val/NLL where CIDEr is always 0": "--data.reader.init_args.folder scenes --data.reader.init_args.val 1",
    "val/attention_entropy_max": "--checkpoint.monitor val/attention_entropy_max --checkpoint.mode max",
}


@pytest.mark.nightly
@pytest.mark.parametrize("watched", WATCHED)
def test_the_epoch_of_the_best_score_is_the_best(cli: Cli, tiny: Path, watched: str, monkeypatch):
    monkeypatch.chdir(tiny.parent)
    ran = cli("fit", "-c", tiny, *QUIET, *WATCHED[watched].split())
    assert ran.code == 0, ran.err
    metric, run = watched.partition(" ")[0], tiny.parent / "run"
    assert ("val/CIDEr is 0 for any captions" in ran.err) == ("CIDEr" in watched)
    logs = run / "logs" / "version_0"
    scores = [float(row[metric]) for row in metrics(logs) if row[metric]]
    best = max(scores) if "entropy" in metric else min(scores)
    assert f"the best model, {metric} {best:.4f}" in ran.err
    stopping = yaml.safe_load((logs / "config.yaml").read_text())["early_stopping"]
    assert (stopping["monitor"], stopping["mode"]) == (metric, "max" if "entropy" in metric else "min")
    assert read_run("run").best_epoch == scores.index(best)
    assert progress(run / "best.ckpt")[0] == scores.index(best) + 1
    assert progress(run / "last.ckpt") == (2, 10)


def test_what_is_missing_is_named(cli: Cli, tiny: Path):
    for verb in ("fit", "predict"):
        said = f"caption {verb} needs a configuration: name one, such as -c shapes_soft"
        check_refused(cli(verb, "--trainer.max_epochs", 3), said)
    check_refused(cli("test", "-c", tiny), "--ckpt_path")


@pytest.mark.nightly
def test_a_run_is_not_written_over_nor_continued_twice(cli: Cli, trained: Trained, copied: Path, tmp_path):
    before = (copied / "last.ckpt").read_bytes()
    elsewhere = shutil.copy(copied / "last.ckpt", tmp_path / "other.ckpt")
    for resumed in ((), ("--ckpt_path", elsewhere)):
        where = ("--trainer.default_root_dir", copied, *resumed)
        check_refused(cli("fit", "-c", trained.config, *QUIET, *where), "--ckpt_path auto")
    with FileLock(copied / LOCK):
        check_refused(resume(cli, trained, copied), "another process")
    assert (copied / "last.ckpt").read_bytes() == before


# -- validate, test, predict -----------------------------------------------------------------------------------


def table(out: str) -> tuple[dict[str, float], str]:
    *rows, signature = out.splitlines()
    return {name: float(value) for name, value in (row.split() for row in rows)}, signature


def test_test_writes_captions_and_prints_scores(cli: Cli, trained: Trained, tmp_path, shapes: Path, recwarn):
    best = trained.folder / "best.ckpt"
    where = ("--ckpt_path", best, "--trainer.default_root_dir", tmp_path / "elsewhere")
    ran = cli("test", "-c", trained.config, *where)
    assert ran.code == 0
    numbers, signature = table(ran.out)
    logs = tmp_path / "elsewhere" / "logs" / "version_0"
    written = json.loads((logs / "test_scores.json").read_text())
    assert written["signature"] == signature
    assert numbers == {name: pytest.approx(value, abs=1e-4) for name, value in written["scores"].items()}
    assert {"BLEU-1", "BLEU-4", "CIDEr", "ROUGE-L", "NLL", "pointing_accuracy"} <= numbers.keys()
    for entry in ("split:test", "BeamSearch(beam_size=2,max_length=10", "tok:ptb", "refs:5", "n:8", "bp:on"):
        assert entry in signature
    results = json.loads((logs / "test_captions.json").read_text())
    assert all(result.keys() == {"image_id", "caption"} for result in results)
    assert len(COCO(shapes / "test.json").loadRes(str(logs / "test_captions.json")).anns) == 8
    # The output names the folder of the results, and expected settings cause no warning.
    assert str(logs) in ran.err
    said = ran.err + "".join(str(warning.message) for warning in recwarn)
    assert not any(noise in said for noise in NOISE)


@pytest.mark.nightly
def test_validate_prints_the_numbers_of_greedy_search(cli: Cli, trained: Trained, tmp_path: Path):
    where = ("--ckpt_path", trained.folder / "last.ckpt", "--trainer.default_root_dir", tmp_path)
    ran = cli("validate", "-c", trained.config, *QUIET, *where)
    assert ran.code == 0
    numbers, signature = table(ran.out)
    assert "split:val" in signature
    assert "Greedy(max_length=10)" in signature
    # The values logged after the last epoch.
    logged = [row for row in metrics(trained.folder / "logs" / "version_0") if row["val/NLL"]][-1]
    for name in ("NLL", "BLEU-1", "CIDEr", "attention_entropy"):
        assert numbers[name] == pytest.approx(float(logged[f"val/{name}"]), abs=1e-4)


def test_predict_captions_every_image_of_a_split(cli: Cli, trained: Trained, tmp_path: Path, shapes: Path):
    where = ("--ckpt_path", trained.folder / "best.ckpt", "--trainer.default_root_dir", tmp_path)
    ran = cli("predict", "-c", trained.config, *QUIET, *where, "--data.predict_split", "val")
    assert (ran.code, ran.out) == (0, "")
    path = tmp_path / "logs" / "version_0" / "predictions.json"
    assert str(path) in ran.err
    results = json.loads(path.read_text())
    known = [image["id"] for image in json.loads((shapes / "val.json").read_text())["images"]]
    assert [result["image_id"] for result in results] == known


@pytest.mark.nightly
def test_the_command_decides_how_to_decode_and_the_checkpoint_the_model(cli: Cli, trained, tmp_path, shapes):
    other = tmp_path / "other.yaml"
    config = trained.config.read_text().replace("hidden_size: 12", "hidden_size: 20")
    other.write_text(config.replace("Softmax", "Multinoulli"))
    where = ("--ckpt_path", trained.folder / "best.ckpt", "--trainer.default_root_dir", tmp_path)
    search = ("--model.search.beam_size", 3, "--data.min_count", 30)
    ran = cli("test", "-c", other, *QUIET, *where, *search)
    assert ran.code == 0
    assert "beam_size=3" in table(ran.out)[1]
    assert "hard" not in table(ran.out)[1]
    # Its words and images are separate, too.
    results = json.loads((tmp_path / "logs" / "version_0" / "test_captions.json").read_text())
    captioner = caption.load(trained.folder / "best.ckpt")
    photo = str(shapes / "images" / "test_000001.png")
    expected = captioner.describe(photo, caption.search.BeamSearch(3, max_length=10))
    assert results[0]["caption"] == expected.text


@pytest.mark.nightly
def test_a_checkpoint_is_tested_without_a_configuration_on_data_of_the_user(cli: Cli, trained, copied: Path):
    where = ("--ckpt_path", copied / "best.ckpt", "--trainer.default_root_dir", copied / "named")
    named = cli("test", "-c", trained.config, *QUIET, *where)
    refused = cli("test", *QUIET, "--ckpt_path", copied / "best.ckpt")
    said = "best.ckpt does not decide which data is read: give the configuration, with -c YAML, or the data"
    check_refused(refused, said)
    data = shlex.split(refused.err.partition("The checkpoint was trained with ")[2])
    assert data[:2] == ["--data.reader", "caption.data.shapes.Shapes"]
    own = cli("test", *QUIET, *data, "--ckpt_path", copied / "best.ckpt")
    assert (own.code, own.out) == (0, named.out), own.err
    assert "BeamSearch(beam_size=2" in own.out
    assert str(copied / "logs" / "version_1") in own.err  # beside those of its training
    predicted = cli("predict", *QUIET, *data, "--ckpt_path", copied / "best.ckpt")
    path = copied / "logs" / "version_2" / "predictions.json"
    assert predicted.code == 0
    assert len(json.loads(path.read_text())) == 8  # of the test split


@pytest.mark.nightly
def test_a_checkpoint_decides_neither_data_nor_processes(cli: Cli, trained, copied, tmp_path, monkeypatch):
    (tmp_path / "mine" / "images").mkdir(parents=True)
    mine = tmp_path / "mine" / "images" / "test_009999.png"
    mine.write_bytes(b"mine")
    contents = torch.load(copied / "best.ckpt", weights_only=True)
    data = contents["data"]
    data["reader"]["init_args"]["folder"] = str(tmp_path / "mine")
    data |= {"workers": 5000, "batch_size": 10**6, "features": str(tmp_path / "mine"), "flip": {}}
    data |= {"shards": {"url": "x"}}
    torch.save(contents, copied / "best.ckpt")
    check_refused(cli("test", *QUIET, "--ckpt_path", copied / "best.ckpt"))
    assert [path for path in (tmp_path / "mine").rglob("*") if path.is_file()] == [mine]
    made: list[Any] = []
    monkeypatch.setattr(CaptionData, "_evaluation", lambda self, split: made.append(self) or self.unknown)
    arguments = "{train: 40, val: 8, test: 8, size: 48}"
    own = ("--data.reader", "caption.data.shapes.Shapes", "--data.reader.init_args", arguments)
    folder = yaml.safe_load(trained.config.read_text())["data"]["reader"]["init_args"]["folder"]
    cli("test", *QUIET, *own, "--data.reader.init_args.folder", folder, "--ckpt_path", copied / "best.ckpt")
    assert (made[0].workers, made[0].batch_size, made[0].store, made[0].shards) == (0, 64, None, None)
    assert mine.read_bytes() == b"mine"


def test_settings_for_lightning_last_only_during_the_command(cli: Cli, tiny: Path, capsys):
    """Warning filters and consoles are global to the process, which may be a notebook."""
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    before = (list(warnings.filters), list(logger.filters))
    without = ("--trainer.enable_checkpointing=false", "--trainer.max_steps=1")
    assert cli("fit", "-c", tiny, *QUIET, *without).code == 0
    assert not list((tiny.parent / "run").glob("*.ckpt"))
    assert (list(warnings.filters), list(logger.filters)) == before
    rich.print("for stdout")
    assert capsys.readouterr().out == "for stdout\n"
