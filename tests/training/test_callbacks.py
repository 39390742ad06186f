"""Attention figures in training: their images, times and loggers, without an effect on training."""

from __future__ import annotations

import csv
import io
import math
import re
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import yaml
from helpers.command_line import Trained
from helpers.training import Watch, differing, fit, make_data, make_trainer, make_training, weights
from matplotlib import pyplot
from PIL import Image
from pytorch_lightning import seed_everything
from pytorch_lightning.callbacks import EMAWeightAveraging
from pytorch_lightning.loggers import CometLogger, CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from caption.attention import Multinoulli
from caption.captioner import Captioner
from caption.core.errors import ImageError, UserError
from caption.data.shapes import Shapes
from caption.models import checkpoint
from caption.objectives import Reinforce
from caption.search import Sampling
from caption.training.callbacks import (
    PICTURE_LOGGERS,
    AttentionFigures,
    EpochReport,
    TrainingBar,
    log_picture,
)
from caption.training.evaluator import Evaluation
from caption.training.weight_averaging import AveragedWeights

SHEET, BY_WORD = "val/attention", "val/attention_by_word"


# -- figures of the attention ----------------------------------------------------------------------------------


def test_figures_change_no_bit_of_the_training(tmp_path: Path, reader: Shapes, monkeypatch):
    """Training samples everywhere and validates in mid-epoch, so that one extra random number would change it."""
    calls: list[Any] = []
    describe = Captioner.describe

    def record(self: Captioner, photos: Any, search: Any = None) -> Any:
        at_test = self.decoder.attention.alignment.at_test
        names = [Path(photo).stem for photo in photos]
        calls.append((names, search, at_test, self.training, float(torch.rand(()))))
        return describe(self, photos, search)

    monkeypatch.setattr(Captioner, "describe", record)
    open_figures, search, metrics, trained = pyplot.get_fignums(), Sampling(max_length=6), [], []
    options = {"validation_search": search, "at_test": "argmax"}
    for folder, callbacks in ((tmp_path / "without", ()), (tmp_path / "with", (AttentionFigures(3),))):
        seed_everything(0, verbose=False)
        data = make_data(reader, captions_per_image=1)
        training = make_training(data, Multinoulli(at_test="sample"), objective=Reinforce(), **options)
        loggers = [TensorBoardLogger(str(folder)), CSVLogger(str(folder))]
        limits = {"limit_train_batches": 2, "val_check_interval": 1}
        make_trainer(folder, *callbacks, logger=loggers, **limits).fit(training, data)
        rows = csv.DictReader((Path(loggers[1].log_dir) / "metrics.csv").open())
        metrics.append(
            [{key: value for key, value in row.items() if not key.endswith("time")} for row in rows]
        )
        trained.append(weights(training))
    assert differing(*trained) == set()
    assert metrics[0] == metrics[1]
    first, second = calls
    assert first == second  # the same samples each time, too
    assert first[:4] == (["val_000001", "val_000002", "val_000003"], search, "argmax", False)
    assert pyplot.get_fignums() == open_figures
    events = EventAccumulator(loggers[0].log_dir, size_guidance={"images": 0}).Reload()
    for name in (SHEET, BY_WORD):
        pictures = events.Images(name)
        assert [picture.step for picture in pictures] == [1, 2]
        drawn = [Image.open(io.BytesIO(picture.encoded_image_string)) for picture in pictures]
        assert all(len(picture.getcolors(1 << 24)) > 100 for picture in drawn)


IN_TRAINING = {
    "loggers": [TensorBoardLogger("logs")],
    "is_global_zero": True,
    "sanity_checking": False,
    "num_val_batches": [2],
    "state": SimpleNamespace(fn="fit"),
}


@pytest.mark.parametrize(
    ("images", "other", "drawn"),
    [
        (4, {}, True),
        (0, {}, False),
        (4, {"loggers": [CSVLogger("logs")]}, False),  # takes no pictures
        (4, {"is_global_zero": False}, False),
        (4, {"sanity_checking": True}, False),
        (4, {"state": SimpleNamespace(fn="validate")}, False),
    ],
)
def test_figures_belong_to_training_and_a_photo_that_has_gone_costs_them_alone(
    monkeypatch, images: int, other: dict[str, Any], drawn: bool, recwarn: pytest.WarningsRecorder
):
    def gone(*_: Any) -> Any:
        raise ImageError("'gone.png' does not exist")

    monkeypatch.setattr(AttentionFigures, "_captions", gone)
    trainer: Any = SimpleNamespace(**IN_TRAINING | other)
    for batch in range(2):  # the last one
        AttentionFigures(images).on_validation_batch_end(trainer, None, None, None, batch)  # type: ignore[arg-type]
    said = ["no attention figures are drawn: 'gone.png' does not exist"] if drawn else []
    assert [str(warning.message) for warning in recwarn] == said


def test_figures_are_there_by_default_and_not_of_a_negative_number_of_images(trained: Trained):
    logs = trained.folder / "logs" / "version_0"
    assert EventAccumulator(str(logs)).Reload().Tags()["images"] == [SHEET, BY_WORD]
    assert yaml.safe_load((logs / "config.yaml").read_text())["attention_figures"] == {"images": 4}
    with pytest.raises(UserError, match="of -1 images"):
        AttentionFigures(-1)


# -- loggers -------------------------------------------------------------------------------------------------------

PIXELS = np.full((4, 6, 3), 51, np.uint8)


@pytest.mark.parametrize(
    ("kind", "call", "arguments", "options"),
    [
        (TensorBoardLogger, "experiment.add_image", ("val/attention", PIXELS, 12), {"dataformats": "HWC"}),
        (WandbLogger, "log_image", ("val/attention", [PIXELS]), {"step": 12}),
        (CometLogger, "experiment.log_image", (PIXELS,), {"name": "val/attention", "step": 12}),
        (MLFlowLogger, "experiment.log_image", ("run 7", PIXELS, "val/attention/00000012.png"), {}),
    ],
)
def test_every_logger_that_takes_pictures_gets_them_by_its_own_call(
    kind: Any, call: str, arguments: tuple[Any, ...], options: dict[str, Any]
):
    logger = MagicMock(spec=kind, run_id="run 7")  # without its service
    assert kind in PICTURE_LOGGERS
    log_picture(logger, "val/attention", PIXELS, 12)
    attrgetter(call)(logger).assert_called_once_with(*arguments, **options)


# -- the report of an epoch ------------------------------------------------------------------------------------


def test_each_validation_prints_a_line_and_captions(tmp_path: Path, reader: Shapes, capsys):
    nll_of_batch = lambda module, *args: float(module.trainer.callback_metrics["train/NLL"])  # noqa: E731
    of_training = Watch(nll_of_batch, "on_train_batch_end")
    trainer = make_trainer(
        tmp_path, EpochReport(samples=2), of_training, max_epochs=2, accumulate_grad_batches=2
    )
    data = make_data(reader)
    module = make_training(data)
    trainer.fit(module, data)
    lines = capsys.readouterr().err.splitlines()
    numbers, captions = module.evaluation.numbers, module.evaluation.captions
    assert list(captions) == [photo.id for photo in data.splits["val"]]
    below = [f"  {image}: {text}" for image, text in captions.items()]
    assert lines[-2:] == below[:2]
    nll = np.mean(of_training.seen[len(of_training.seen) // 2 :])
    cells = ["2", f"{nll:.4f}", f"{numbers['NLL']:.4f}", f"{numbers['CIDEr']:.4f}"]
    assert [lines[0].split()[0], lines[1].split()[0], lines[-3].split()[:4]] == ["epoch", "1", cells]
    assert len(lines) == 1 + 2 * (1 + 2)
    trainer.validate(module, data, verbose=False)
    assert capsys.readouterr().err == ""


@pytest.mark.nightly
@pytest.mark.parametrize("average", [AveragedWeights, EMAWeightAveraging])
def test_the_model_that_training_starts_from_is_reported(tmp_path: Path, reader: Shapes, capsys, average):
    first = fit(tmp_path, reader, EpochReport(), max_epochs=2)
    checkpoint.save(first.captioner, tmp_path / "first.ckpt")
    *_, last = (line.split() for line in capsys.readouterr().err.splitlines())
    options = {"seed": 1, "warm_start": str(tmp_path / "first.ckpt")}
    again = fit(tmp_path, reader, EpochReport(), average(decay=0.5), **options)
    _, start, epoch = (line.split() for line in capsys.readouterr().err.splitlines())
    assert (start[:4], epoch[0]) == (["start", "–", *last[2:4]], "1")
    silent = fit(tmp_path, reader, average(decay=0.5), **options)
    assert not differing(weights(again), weights(silent))


@pytest.mark.parametrize(
    ("monitor", "mode", "before", "scores", "best"),
    [
        ("val/CIDEr", "max", None, [0.0, 0.5, 0.5, 0.4, 0.6], [0, 1, 4]),
        ("val/CIDEr", "max", 0.5, [0.4, 0.6], [1]),  # resumed
        ("val/NLL", "min", None, [2.0, 3.0, 1.0], [0, 2]),
        ("val/CIDEr", "max", None, [math.nan, 0.1], [1]),
    ],
)
def test_the_best_so_far_is_marked_and_captions_do_not_steer_the_terminal(
    monitor: str, mode: str, before: float | None, scores: list[float], best: list[int], capsys
):
    trainer: Any = SimpleNamespace(
        state=SimpleNamespace(fn="fit"), sanity_checking=False, is_global_zero=True, current_epoch=3,
        checkpoint_callback=SimpleNamespace(best_model_score=before), callback_metrics={},
    )  # fmt: skip
    evaluation = Evaluation({"NLL": 1.0, "CIDEr": 2.0}, MagicMock(), {"a\x1b[2J": "a\ndog", "b": "a cat"})
    module: Any = SimpleNamespace(evaluation=evaluation, monitor=monitor, mode=mode)
    report = EpochReport(samples=1)
    for score in scores:
        trainer.callback_metrics = {monitor: torch.tensor(score)}
        report.on_validation_end(trainer, module)
    trainer.is_global_zero = False  # of several processes, the first reports
    report.on_validation_end(trainer, module)
    head, *lines = capsys.readouterr().err.splitlines()
    assert head == "      epoch  train NLL    val NLL      CIDEr    seconds"
    rows, captions = lines[::2], lines[1::2]
    assert {row[:55] for row in rows} == {"          4          –     1.0000     2.0000          0"}
    assert [number for number, row in enumerate(rows) if row.endswith("  best so far")] == best
    assert captions == ["  a\\x1b[2J: a\\ndog"] * len(scores)


# -- the bar ---------------------------------------------------------------------------------------------------


def test_the_bar_is_one_line_of_80_columns(tmp_path: Path, reader: Shapes, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar = TrainingBar()
    # Lightning would read each of these numbers in every step, and wait for a GPU.
    read = Watch(lambda module, *args: module.trainer.progress_bar_metrics, "on_train_batch_end")
    trainer = make_trainer(tmp_path, bar, read, max_epochs=1, enable_progress_bar=True)
    data = make_data(reader)
    trainer.fit(make_training(data), data)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    lines = re.split(r"[\r\n]+", shown)
    of_training = [line for line in lines if "NLL" in line]
    assert of_training
    assert all(re.fullmatch(r"Epoch 1/1 .* \d/5 .* NLL: [\d.]+ *", line) for line in of_training)
    # As wide with thousands of batches and a hundred epochs.
    assert max(map(len, lines)) <= 80 - 2 * len("9999") - 2
    assert "v_num" not in shown
    assert read.seen
    assert not any(read.seen)
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert TrainingBar().is_disabled  # in a file
