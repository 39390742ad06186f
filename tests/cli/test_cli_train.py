"""`caption fit | validate | test | predict`: their output, messages and errors."""

from __future__ import annotations

import csv
import json
import logging
import math
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from helpers.command_line import QUIET, Ran, Trained

import caption
from caption.data.module import CaptionData
from caption.training.run_results import read_run

Cli = Callable[..., Ran]


def progress(path: Path) -> tuple[int, int]:
    contents = torch.load(path, weights_only=True)
    return contents["epoch"] + 1, contents["global_step"]


# -- fit -------------------------------------------------------------------------------------------------------


def test_fit_leaves_a_best_and_a_last_model_and_logs(trained: Trained):
    logs = trained.folder / "logs" / "version_0"
    visible = {path.name for path in trained.folder.iterdir() if not path.name.startswith(".")}
    assert visible == {"best.ckpt", "last.ckpt", "logs"}
    assert list(logs.glob("events.out.tfevents.*"))
    rows = list(csv.DictReader((logs / "metrics.csv").open()))
    names = {name for row in rows for name, value in row.items() if value}
    assert {"train/loss", "train/NLL", "val/NLL", "val/BLEU-4", "val/CIDEr", "val/pointing_accuracy"} <= names
    assert [row["epoch"] for row in rows if row["val/CIDEr"]] == ["0", "1"]
    assert all(math.isfinite(float(value)) for row in rows for value in row.values() if value)
    assert progress(trained.folder / "last.ckpt") == (2, 10)
    assert [caption.load(path).search.beam_size for path in trained.folder.glob("*.ckpt")] == [2, 2]
    config = yaml.safe_load((logs / "config.yaml").read_text())
    assert config["data"]["batch_size"] == 8
    assert config["seed_everything"] == 0
    assert config["checkpoint"]["monitor"] == config["early_stopping"]["monitor"] == "val/CIDEr"
    assert config["checkpoint"]["mode"] == config["early_stopping"]["mode"] == "max"


PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
NOISE = (
    "litlogger",
    "TPU",
    "dirpath",
    "many workers",
    "args parameter",
    "GPU available",
    "Seed set",
    "max_epochs",
)


def test_fit_ends_with_the_best_model_and_has_little_else_to_say(trained: Trained):
    assert trained.ran.out == ""
    for noise in (*NOISE, "Warning", "is deprecated", "pin_memory", "Traceback"):
        assert noise not in trained.ran.err
    rows = csv.DictReader((trained.folder / "logs" / "version_0" / "metrics.csv").open())
    best, path = (
        max(float(row["val/CIDEr"]) for row in rows if row["val/CIDEr"]),
        trained.folder / "best.ckpt",
    )
    head, first, second, *end = trained.ran.err.splitlines()
    assert [line.split()[0] for line in (head, first, second)] == ["epoch", "0", "1"]
    assert end == [
        f"caption fit: the best model, val/CIDEr {best:.4f}, is {path}. Next:",
        f"  caption describe PHOTO --model {path}",
    ]


@pytest.mark.slow
def test_captions_and_the_model_summary_are_shown_on_request(cli: Cli, tiny: Path):
    asked = ("--epoch_report.samples", 2, "--trainer.enable_model_summary", "true", "--trainer.max_epochs", 1)
    ran = cli("fit", "-c", tiny, *asked)
    assert (ran.code, ran.out) == (0, "")
    assert "captioner" in ran.err
    assert [line for line in ran.err.splitlines() if line.startswith("  1000002: ")]
    assert "  1000003: " not in ran.err


@pytest.mark.nightly
@pytest.mark.slow
def test_the_last_model_is_the_last_even_where_the_best_is_an_earlier_one(cli: Cli, tiny: Path):
    never_better = ("--checkpoint.monitor", "val/attention_entropy_max", "--checkpoint.mode", "max")
    ran = cli("fit", "-c", tiny, *never_better, "--trainer.max_epochs", 2, *QUIET)
    assert ran.code == 0
    assert progress(tiny.parent / "run" / "best.ckpt") == (1, 5)
    assert progress(tiny.parent / "run" / "last.ckpt") == (2, 10)


@pytest.mark.nightly
@pytest.mark.parametrize("trial", ["--trainer.fast_dev_run=1", "--trainer.limit_val_batches=0"])
def test_a_trial_of_a_few_steps(cli: Cli, tiny: Path, trial: str):
    ran = cli("fit", "-c", tiny, *QUIET, trial, "--trainer.max_epochs", 1)
    assert (ran.code, ran.out) == (0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--checkpoint.monitor", "val/CIDR"),
            "val/CIDR: training has no such metric (did you mean val/CIDEr?)",
        ),
        (
            ("--early_stopping.monitor", "val/NL"),
            "val/NL: training has no such metric (did you mean val/NLL?)",
        ),
        (("--checkpoint.monitor", "mine"), "needs --checkpoint.mode min or max"),
        (("--checkpoint.monitor", "val/NLL", "--checkpoint.mode", "max"), "better when it is lower"),
        (("--early_stopping.mode", "min"), "val/CIDEr is better when it is higher"),
        (("--checkpoint.monitor", "val/attention_entropy"), "neither good nor bad"),
        (
            ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.monitor=val/CIDEr"),
            "ModelCheckpoint.mode min",
        ),
        (
            (
                *("--checkpoint.monitor", "val/NLL"),
                *("--model.scheduler", PLATEAU, "--model.scheduler.init_args.mode", "max"),
            ),
            "better when it is lower",
        ),
    ],
)
def test_what_is_watched_is_refused_before_the_first_step(
    cli: Cli, tiny: Path, options: tuple[str, ...], message: str
):
    ran = cli("fit", "-c", tiny, *QUIET, *options)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert not (tiny.parent / "run" / "best.ckpt").exists()


@pytest.mark.nightly
@pytest.mark.slow
def test_the_direction_follows_from_the_name(cli: Cli, tiny: Path):
    """With --checkpoint.monitor val/NLL the best checkpoint is the epoch of the lowest NLL."""
    worse = ("--model.optimizer.lr", "0.5", "--trainer.max_epochs", 3, "--early_stopping.patience", 1)
    ran = cli("fit", "-c", tiny, *QUIET, "--checkpoint.monitor", "val/NLL", *worse)
    assert ran.code == 0, ran.err
    folder = tiny.parent / "run" / "logs" / "version_0"
    rows = [
        float(row["val/NLL"]) for row in csv.DictReader((folder / "metrics.csv").open()) if row["val/NLL"]
    ]
    assert f"the best model, val/NLL {min(rows):.4f}" in ran.err
    config = yaml.safe_load((folder / "config.yaml").read_text())
    for section in ("checkpoint", "early_stopping"):
        assert (config[section]["monitor"], config[section]["mode"]) == ("val/NLL", "min")


@pytest.mark.nightly
@pytest.mark.slow
def test_the_best_epoch_is_chosen_by_nll_where_cider_is_always_0(cli: Cli, tiny: Path):
    scenes = ("--data.reader.init_args.folder", tiny.parent / "scenes", "--data.reader.init_args.val", 1)
    ran = cli("fit", "-c", tiny, *QUIET, *scenes, "--trainer.max_epochs", 2)
    assert ran.code == 0, ran.err
    assert "val/CIDEr is 0 for any captions" in ran.err
    folder = tiny.parent / "run" / "logs" / "version_0"
    rows = [
        float(row["val/NLL"]) for row in csv.DictReader((folder / "metrics.csv").open()) if row["val/NLL"]
    ]
    assert f"the best model, val/NLL {min(rows):.4f}" in ran.err
    assert yaml.safe_load((folder / "config.yaml").read_text())["early_stopping"]["monitor"] == "val/NLL"
    assert read_run(str(tiny.parent / "run")).best_epoch == rows.index(min(rows))


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_without_a_configuration_the_message_says_to_name_one(cli: Cli, verb: str):
    ran = cli(verb, "--trainer.max_epochs", 3)
    assert (ran.code, ran.out) == (2, "")
    assert f"caption {verb} needs a configuration: name one, such as -c shapes_soft" in ran.err


@pytest.mark.nightly
def test_an_earlier_run_is_not_written_over(cli: Cli, trained: Trained, copied: Path, tmp_path):
    before = (copied / "last.ckpt").read_bytes()
    elsewhere = shutil.copy(copied / "last.ckpt", tmp_path / "other.ckpt")
    for resumed in ((), ("--ckpt_path", elsewhere)):
        where = ("--trainer.default_root_dir", copied, *resumed)
        ran = cli("fit", "-c", trained.config, *QUIET, *where)
        assert (ran.code, ran.out) == (2, "")
        assert "--ckpt_path auto" in ran.err
    assert (copied / "last.ckpt").read_bytes() == before


# -- validate, test, predict -----------------------------------------------------------------------------------


def table(out: str) -> tuple[dict[str, float], str]:
    *rows, signature = out.splitlines()
    return {name: float(value) for name, value in (row.split() for row in rows)}, signature


def test_test_writes_captions_and_scores_and_prints_them(
    cli: Cli, trained: Trained, tmp_path: Path, shapes: Path, recwarn: pytest.WarningsRecorder
):
    best = trained.folder / "best.ckpt"
    where = ("--ckpt_path", best, "--trainer.default_root_dir", tmp_path / "elsewhere")
    ran = cli("test", "-c", trained.config, *where)
    assert ran.code == 0
    numbers, signature = table(ran.out)
    logs = tmp_path / "elsewhere" / "logs" / "version_0"
    written = json.loads((logs / "test_scores.json").read_text())
    assert written["signature"] == signature
    assert numbers == {name: pytest.approx(value, abs=1e-4) for name, value in written["scores"].items()}
    assert {
        *("BLEU-1", "BLEU-4", "CIDEr", "ROUGE-L", "NLL", "pointing_accuracy", "pointing_chance"),
    } <= numbers.keys()
    for entry in ("split:test", "BeamSearch(beam_size=2,max_length=10", "tok:ptb", "refs:5", "n:8", "bp:on"):
        assert entry in signature
    results = json.loads((logs / "test_captions.json").read_text())
    known = {image["id"] for image in json.loads((shapes / "test.json").read_text())["images"]}
    assert {result["image_id"] for result in results} == known
    assert all(
        result.keys() == {"image_id", "caption"} and isinstance(result["caption"], str) for result in results
    )
    from pycocotools.coco import COCO

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
    rows = csv.DictReader((trained.folder / "logs" / "version_0" / "metrics.csv").open())
    logged = [row for row in rows if row["val/NLL"]][-1]
    for name in ("NLL", "BLEU-1", "CIDEr", "attention_entropy"):
        assert numbers[name] == pytest.approx(float(logged[f"val/{name}"]), abs=1e-4)


def test_predict_captions_every_image_of_a_split(cli: Cli, trained: Trained, tmp_path: Path, shapes: Path):
    where = ("--ckpt_path", trained.folder / "best.ckpt", "--trainer.default_root_dir", tmp_path)
    ran = cli("predict", "-c", trained.config, *QUIET, *where, "--data.predict_split", "train")
    assert (ran.code, ran.out) == (0, "")
    path = tmp_path / "logs" / "version_0" / "predictions.json"
    assert str(path) in ran.err
    results = json.loads(path.read_text())
    known = [image["id"] for image in json.loads((shapes / "train.json").read_text())["images"]]
    assert [result["image_id"] for result in results] == known


@pytest.mark.nightly
def test_decoding_options_are_the_commands_and_the_architecture_is_the_checkpoints(
    cli: Cli, trained, tmp_path, shapes
):
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
@pytest.mark.slow
def test_a_checkpoint_is_tested_with_its_own_configuration_on_data_that_the_user_names(
    cli: Cli, trained: Trained, copied: Path
):
    where = ("--ckpt_path", copied / "best.ckpt", "--trainer.default_root_dir", copied / "named")
    named = cli("test", "-c", trained.config, *QUIET, *where)
    refused = cli("test", *QUIET, "--ckpt_path", copied / "best.ckpt")
    assert (refused.code, refused.out) == (2, "")
    assert (
        "best.ckpt does not decide what is read: give the configuration, with -c YAML, or the data"
        in refused.err
    )
    data = shlex.split(refused.err.partition("The training says that it had ")[2])
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
@pytest.mark.parametrize("verb", ["test"])
def test_a_checkpoint_decides_neither_what_is_read_nor_how_many_processes(
    verb: str, cli: Cli, trained: Trained, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "mine" / "images").mkdir(parents=True)
    mine = tmp_path / "mine" / "images" / "test_009999.png"
    mine.write_bytes(b"mine")
    contents = torch.load(copied / "best.ckpt", weights_only=True)
    data = contents["data"]
    data["reader"]["init_args"]["folder"] = str(tmp_path / "mine")
    data |= {"workers": 5000, "batch_size": 10**6, "features": str(tmp_path / "mine"), "flip": {}}
    data |= {"shards": {"url": "x"}}
    torch.save(contents, copied / "best.ckpt")
    ran = cli(verb, *QUIET, "--ckpt_path", copied / "best.ckpt")
    assert (ran.code, ran.out) == (2, "")
    assert [path for path in (tmp_path / "mine").rglob("*") if path.is_file()] == [mine]
    made: list[Any] = []
    monkeypatch.setattr(CaptionData, "_evaluation", lambda self, split: made.append(self) or self.unknown)
    arguments = "{train: 40, val: 8, test: 8, size: 48}"
    own = ("--data.reader", "caption.data.shapes.Shapes", "--data.reader.init_args", arguments)
    folder = yaml.safe_load(trained.config.read_text())["data"]["reader"]["init_args"]["folder"]
    cli(verb, *QUIET, *own, "--data.reader.init_args.folder", folder, "--ckpt_path", copied / "best.ckpt")
    assert (made[0].workers, made[0].batch_size, made[0].store, made[0].shards) == (0, 64, None, None)
    assert mine.read_bytes() == b"mine"


# -- wrong configurations --------------------------------------------------------------------------------------

WRONG = [
    ("max_epochs: 2", "max_epoch: 2", "trainer.max_epoch|did you mean trainer.max_epochs?"),
    ("data:\n", "dta:\n", "dta"),
    (
        "embedding_size: 8",
        "embeding_size: 8",
        "model.decoder|ShowAttendAndTellDecoder|did you mean embedding_size?",
    ),
    ("hidden_size: 12", "hidden_size: big", "model.decoder|hidden_size|int|big"),
    ("fit: squash", "fit: squish", "data.transform|fit|'squash', 'crop', 'pad'|squish"),
    ("encoders.SmallCNN", "encoders.SmolCNN", "model.encoder|SmolCNN|did you mean SmallCNN?"),
    ("encoders.SmallCNN", "search.Greedy", "model.encoder|Greedy|Encoder"),
    ("attention.Softmax", "attention.Soft", "model.decoder|attention|alignment|Soft|did you mean Softmax?"),
    ("caption.encoders.Small", "captions.Small", "model.encoder|captions|put captions.py into"),
    ("beam_size: 2", "beam_size: 0", "beam_size|0"),
    ("batch_size: 8", "batch_size: 0", "batch_size|0"),
    ("accelerator: cpu", "accelerator: warp", "warp"),
    ("batch_size: 8", "batch_size: [8", "wrong.yaml|is not YAML|line"),
]


@pytest.mark.parametrize(("right", "wrong", "fragments"), WRONG)
def test_a_wrong_configuration_is_a_line_that_names_the_place(
    cli: Cli, tiny: Path, right: str, wrong: str, fragments: str
):
    config = tiny.read_text()
    assert right in config
    path = tiny.with_name("wrong.yaml")
    path.write_text(config.replace(right, wrong))
    ran = cli("fit", "-c", path, *QUIET)
    assert (ran.code, ran.out) == (2, "")
    (message,) = [line for line in ran.err.splitlines() if line.startswith("caption: ")]
    assert all(fragment in message for fragment in fragments.split("|")), message
    assert len(message) < 500
    assert "usage:" not in ran.err
    assert "Traceback" not in ran.err
    assert not (tiny.parent / "run").exists()


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--data.batchsize", "8"], "did you mean data.batch_size?"),
        (["--data.batch_size", "many"], "many"),
        (["--trainer.precision", "bf61"], "did you mean bf16?"),
        (["--ckpt_path"], "--ckpt_path"),
        (["--config=nowhere.yaml"], "nowhere.yaml"),
        (["--model.warm_start", "nowhere.ckpt"], "nowhere.ckpt"),
    ],
    ids=str,
)
def test_a_wrong_command_line(cli: Cli, tiny: Path, args: list[str], named: str):
    ran = cli("fit", "-c", tiny, *QUIET, *args)
    assert (ran.code, ran.out) == (2, "")
    assert named in ran.err
    assert "Traceback" not in ran.err
    assert "usage:" not in ran.err


def test_what_is_missing_is_named(cli: Cli, tiny: Path):
    for args, missing in ((["fit"], "-c shapes_soft"), (["test", "-c", tiny], "--ckpt_path")):
        ran = cli(*args)
        assert (ran.code, ran.out, missing in ran.err) == (2, "", True), ran.err


# -- wrong data and checkpoints --------------------------------------------------------------------------------


def test_a_missing_image_is_named_before_training_starts(cli: Cli, tiny: Path, tmp_path: Path):
    images = [{"id": 1, "file_name": "there.png"}, {"id": 2, "file_name": "gone.png"}]
    annotations = [{"id": i, "image_id": i, "caption": "a cat"} for i in (1, 2)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    (tmp_path / "there.png").touch()
    config = yaml.safe_load(tiny.read_text())
    arguments = {"captions": {"train": str(tmp_path / "captions.json")}, "images": {"train": str(tmp_path)}}
    config["data"]["reader"] = {"class_path": "caption.data.readers.Coco", "init_args": arguments}
    tiny.write_text(yaml.safe_dump(config))
    ran = cli("fit", "-c", tiny)
    assert (ran.code, ran.out) == (2, "")
    assert str(tmp_path / "gone.png") in ran.err
    assert "there.png" not in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("verb", "kind"), [("fit", "text"), ("fit", "folder"), ("test", "missing")])
def test_other_files_are_refused_as_checkpoints(
    cli: Cli, trained: Trained, tmp_path: Path, verb: str, kind: str
):
    path = tmp_path / "impostor.ckpt"
    if kind == "text":
        path.write_text("weights")
    elif kind == "folder":
        path.mkdir()
    where = ("--trainer.default_root_dir", tmp_path / "run")
    ran = cli(verb, "-c", trained.config, *QUIET, *where, "--ckpt_path", path)
    assert (ran.code, ran.out) == (2, "")
    assert str(path) in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "run").exists()


# -- output ----------------------------------------------------------------------------------------------------


def test_settings_for_lightning_last_only_during_the_command_here_without_checkpoints(
    cli: Cli, tiny: Path, capsys
):
    """Warning filters and consoles are global to the process, which may be a notebook."""
    import warnings

    import rich

    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    before = (list(warnings.filters), list(logger.filters))
    without = ("--trainer.enable_checkpointing=false", "--trainer.max_steps=1")
    assert cli("fit", "-c", tiny, *QUIET, *without).code == 0
    assert not list((tiny.parent / "run").glob("*.ckpt"))
    assert (list(warnings.filters), list(logger.filters)) == before
    rich.print("for stdout")
    assert capsys.readouterr().out == "for stdout\n"
