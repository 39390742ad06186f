"""Attention figures in training: their images, times and loggers, without an effect on training."""

from __future__ import annotations

import copy
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
from helpers.training import differing, fit, make_data, make_trainer, make_training, weights
from matplotlib import pyplot
from PIL import Image
from pytorch_lightning import Callback, seed_everything
from pytorch_lightning.callbacks import EMAWeightAveraging, WeightAveraging
from pytorch_lightning.loggers import CometLogger, CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from caption import checkpoint
from caption.attention import Multinoulli
from caption.captioner import Captioner
from caption.data.shapes import Shapes
from caption.errors import ImageError, UserError
from caption.objectives import Reinforce
from caption.search import Greedy, Sampling
from caption.training.callbacks import (
    PICTURE_LOGGERS,
    AttentionFigures,
    AveragedWeights,
    EpochReport,
    TrainingBar,
    log_picture,
)
from caption.training.evaluator import Evaluation

SHEET, BY_WORD = "val/attention", "val/attention_by_word"


class Fitted:
    """A short training run of sampled attention, with loggers."""

    def __init__(
        self, folder: Path, reader: Shapes, callback: AttentionFigures | None, **options: Any
    ) -> None:
        seed_everything(0, verbose=False)
        self.data = make_data(reader, captions_per_image=1, features=options.pop("features", None))
        parts = {name: options.pop(name) for name in ("validation_search", "at_test") if name in options}
        options = {
            "max_epochs": 2,
            "limit_train_batches": 2,
            "logger": [TensorBoardLogger(str(folder)), CSVLogger(str(folder))],
            **options,
        }
        self.training = make_training(
            self.data,
            Multinoulli(at_test="sample"),
            objective=Reinforce(),
            **{"validation_search": Greedy(6), **parts},
        )
        self.trainer = make_trainer(folder, *([callback] if callback else []), **options)
        self.trainer.fit(self.training, self.data)

    def pictures(self, name: str) -> dict[int, Image.Image]:
        """The images by step."""
        events = EventAccumulator(self.trainer.loggers[0].log_dir, size_guidance={"images": 0}).Reload()
        if name not in events.Tags()["images"]:
            return {}
        return {
            event.step: Image.open(io.BytesIO(event.encoded_image_string)) for event in events.Images(name)
        }


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The photos, search, setting, mode and next random number of every call of `Captioner.describe`."""
    calls: list[Any] = []
    describe = Captioner.describe

    def record(self: Captioner, photos: Any, search: Any = None) -> Any:
        at_test = self.decoder.attention.alignment.at_test
        names = [Path(photo).stem for photo in photos]
        calls.append((names, search, at_test, self.training, float(torch.rand(()))))
        return describe(self, photos, search)

    monkeypatch.setattr(Captioner, "describe", record)
    return calls


# -- the figures and their times -------------------------------------------------------------------------------


@pytest.mark.nightly
def test_every_validation_leaves_two_pictures_of_the_first_images_with_its_search(
    tmp_path: Path, reader: Shapes, described: list[Any]
):
    open_figures, search = pyplot.get_fignums(), Greedy(6)
    fitted = Fitted(tmp_path, reader, AttentionFigures(3), validation_search=search, at_test="argmax")
    first, second = described
    assert first == second  # the same samples each time, too
    assert first[:4] == (["val_000001", "val_000002", "val_000003"], search, "argmax", False)
    assert pyplot.get_fignums() == open_figures
    for name in (SHEET, BY_WORD):
        pictures = fitted.pictures(name)
        assert list(pictures) == [2, 4]
        assert all(len(picture.getcolors(1 << 24)) > 100 for picture in pictures.values())
        assert np.any(np.asarray(pictures[2].resize((90, 60))) != np.asarray(pictures[4].resize((90, 60))))


@pytest.mark.parametrize(
    "options",
    [{"logger": CSVLogger}, {"limit_val_batches": 0}, {"fast_dev_run": True}, {"images": 0}],
    ids=["no logger that takes pictures", "no validation", "a trial", "no images"],
)
def test_nothing_is_done_without_images_or_logger(
    tmp_path: Path, reader: Shapes, described: list[Any], options: dict[str, Any]
):
    callback = AttentionFigures(options.pop("images", 4))
    loggers = {"logger": options.pop("logger")(str(tmp_path))} if "logger" in options else {}
    Fitted(tmp_path, reader, callback, max_epochs=1, **loggers, **options)
    trainer = SimpleNamespace(loggers=[TensorBoardLogger(str(tmp_path))], is_global_zero=False)
    callback.on_validation_epoch_end(trainer, None)  # type: ignore[arg-type] # of several processes, the first draws
    assert described == []


def test_nor_in_the_check_before_training_nor_in_evaluation(
    tmp_path: Path, reader: Shapes, described: list[Any]
):
    fitted = Fitted(tmp_path, reader, AttentionFigures(2), max_epochs=1, num_sanity_val_steps=1)
    fitted.trainer.validate(fitted.training, fitted.data, verbose=False)
    assert len(described) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("average", [AveragedWeights, EMAWeightAveraging])
def test_the_model_that_training_starts_from_is_reported(
    tmp_path: Path, reader: Shapes, capsys: pytest.CaptureFixture[str], average: type[WeightAveraging]
):
    first = fit(tmp_path, reader, EpochReport(), max_epochs=2)
    checkpoint.save(first.captioner, tmp_path / "first.ckpt")
    head, *lines = (line.split() for line in capsys.readouterr().err.splitlines())
    assert head == ["epoch", "loss", "NLL", "CIDEr", "seconds"]
    assert [line[0] for line in lines] == ["0", "1"]
    again = fit(
        tmp_path, reader, EpochReport(), average(decay=0.5), seed=1, warm_start=str(tmp_path / "first.ckpt")
    )
    _, start, epoch = (line.split() for line in capsys.readouterr().err.splitlines())
    assert (start[:4], epoch[0]) == (["start", "–", *lines[-1][2:4]], "0")
    silent = fit(tmp_path, reader, average(decay=0.5), seed=1, warm_start=str(tmp_path / "first.ckpt"))
    assert not differing(weights(again), weights(silent))


def test_a_negative_number_of_images():
    with pytest.raises(UserError, match="of -1 images"):
        AttentionFigures(-1)


# -- no effect on training -------------------------------------------------------------------------------------


def test_training_is_the_same_to_the_last_bit(tmp_path: Path, reader: Shapes):
    """Training samples everywhere and validates in mid-epoch, so that one extra random number would change it."""
    options: dict[str, Any] = {"validation_search": Sampling(max_length=6), "val_check_interval": 1}
    fitted = [
        Fitted(tmp_path / str(i), reader, callback, max_epochs=1, **copy.deepcopy(options))
        for i, callback in enumerate((None, AttentionFigures(2)))
    ]
    assert differing(*(weights(run.training) for run in fitted)) == set()
    metrics = [
        [
            {name: value for name, value in row.items() if not name.endswith("time")}
            for row in csv.DictReader((Path(run.trainer.loggers[1].log_dir) / "metrics.csv").open())
        ]
        for run in fitted
    ]
    assert metrics[0] == metrics[1]
    assert len(fitted[1].pictures(SHEET)) == 2


def test_a_photo_that_has_gone_costs_the_figure_and_not_the_training(
    tmp_path: Path, reader: Shapes, monkeypatch: pytest.MonkeyPatch
):
    def moved(self: Captioner, photos: Any, search: Any = None) -> Any:
        raise ImageError("'gone.png' does not exist")

    monkeypatch.setattr(Captioner, "describe", moved)
    with pytest.warns(UserWarning, match=r"no attention figures are drawn: 'gone\.png'"):
        fitted = Fitted(tmp_path, reader, AttentionFigures(2))
    assert fitted.trainer.current_epoch == 2
    assert fitted.pictures(SHEET) == {}


def test_they_are_there_by_default(trained: Trained):
    logs = trained.folder / "logs" / "version_0"
    assert EventAccumulator(str(logs)).Reload().Tags()["images"] == [SHEET, BY_WORD]
    assert yaml.safe_load((logs / "config.yaml").read_text())["attention_figures"] == {"images": 4}


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
    class Recorder(kind):
        """A logger of this class without its service."""

        experiment = MagicMock()
        run_id = "run 7"
        log_image = MagicMock()

        def __init__(self) -> None:
            pass

    logger = Recorder()
    assert kind in PICTURE_LOGGERS
    log_picture(logger, "val/attention", PIXELS, 12)
    attrgetter(call)(logger).assert_called_once_with(*arguments, **options)


# -- the report of an epoch ------------------------------------------------------------------------------------


def test_each_validation_of_a_training_prints_a_line_and_the_captions_that_are_asked_for(
    tmp_path: Path, reader: Shapes, capsys: pytest.CaptureFixture[str]
):
    losses: list[float] = []

    class Losses(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            losses.append(float(trainer.callback_metrics["train/loss"]))

    trainer = make_trainer(
        tmp_path, EpochReport(samples=2), Losses(), max_epochs=2, accumulate_grad_batches=2
    )
    data = make_data(reader)
    module = make_training(data)
    trainer.fit(module, data)
    lines = capsys.readouterr().err.splitlines()
    numbers, captions = module.evaluation.numbers, module.evaluation.captions
    assert list(captions) == [photo.id for photo in data.splits["val"]]
    below = [f"  {image}: {text}" for image, text in captions.items()]
    assert lines[-2:] == below[:2]
    loss = np.mean(losses[len(losses) // 2 :])
    cells = ["1", f"{loss:.3f}", f"{numbers['NLL']:.4f}", f"{numbers['CIDEr']:.4f}"]
    assert [lines[0].split()[0], lines[1].split()[0], lines[-3].split()[:4]] == ["epoch", "0", cells]
    assert len(lines) == 1 + 2 * (1 + 2)
    trainer.validate(module, data, verbose=False)
    assert capsys.readouterr().err == ""


class Watched:
    """What a report sees of a training whose validations give these scores."""

    def __init__(self, monitor: str = "val/CIDEr", mode: str = "max", before: float | None = None) -> None:
        known = None if before is None else torch.tensor(before)
        self.trainer: Any = SimpleNamespace(
            state=SimpleNamespace(fn="fit"), sanity_checking=False, is_global_zero=True, current_epoch=3,
            checkpoint_callback=SimpleNamespace(best_model_score=known), callback_metrics={},
        )  # fmt: skip
        evaluation = Evaluation({"NLL": 1.0, "CIDEr": 2.0}, MagicMock(), {"a\x1b[2J": "a\ndog"})
        self.module: Any = SimpleNamespace(evaluation=evaluation, monitor=monitor, mode=mode)

    def lines(self, report: EpochReport, score: float) -> None:
        self.trainer.callback_metrics[self.module.monitor] = torch.tensor(score)
        report.on_validation_end(self.trainer, self.module)


@pytest.mark.parametrize(
    ("watched", "scores", "best"),
    [
        (Watched(), [0.0, 0.5, 0.5, 0.4, 0.6], [0, 1, 4]),
        (Watched(before=0.5), [0.4, 0.6], [1]),  # resumed
        (Watched("val/NLL", "min"), [2.0, 3.0, 1.0], [0, 2]),
        (Watched(), [math.nan, 0.1], [1]),
    ],
)
def test_the_best_so_far_is_marked(
    watched: Watched, scores: list[float], best: list[int], capsys: pytest.CaptureFixture[str]
):
    report = EpochReport()
    for score in scores:
        watched.lines(report, score)
    lines = capsys.readouterr().err.splitlines()[1:]
    assert [number for number, line in enumerate(lines) if line.endswith("  best so far")] == best


def test_captions_in_the_report_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]):
    report, watched = EpochReport(samples=1), Watched()
    watched.lines(report, 2.0)
    watched.trainer.is_global_zero = False  # of several processes, the first reports
    watched.lines(report, 3.0)
    assert capsys.readouterr().err.splitlines() == [
        "    epoch     loss      NLL    CIDEr  seconds",
        "        3        –   1.0000   2.0000        0  best so far",
        "  a\\x1b[2J: a\\ndog",
    ]


# -- the bar ---------------------------------------------------------------------------------------------------


def test_the_bar_is_one_line_of_80_columns(
    tmp_path: Path, reader: Shapes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar = TrainingBar()
    trainer = make_trainer(tmp_path, bar, max_epochs=1, enable_progress_bar=True)
    data = make_data(reader)
    trainer.fit(make_training(data), data)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    lines = re.split(r"[\r\n]+", shown)
    of_training = [line for line in lines if "loss" in line]
    assert of_training
    assert all(re.fullmatch(r"Epoch 0/0 .* \d/5 .* loss: [\d.]+ NLL: [\d.]+ *", line) for line in of_training)
    assert (
        max(map(len, lines)) <= 80 - 2 * len("9999") - 2
    )  # as wide with thousands of batches and a hundred epochs
    assert "v_num" not in shown
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert TrainingBar().is_disabled  # in a file
