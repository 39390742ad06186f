"""The temperature that falls early in training: what it divides, when, and that nothing of it is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.training import Watch, differing, fit, make_data, make_trainer, make_training, weights
from pytorch_lightning import Callback, seed_everything
from pytorch_lightning.callbacks import ModelCheckpoint

from caption.attention import MultiHeadAttention
from caption.attention.base import Query
from caption.data.shapes import Shapes
from caption.decoders import ShowAttendAndTellDecoder
from caption.errors import UserError
from caption.regions import Regions
from caption.training.attention_temperature import AttentionTemperature


def temperature(module: Any, *args: Any) -> float:
    """How many times as large scores are in evaluation as in training."""
    attention = module.captioner.decoder.attention
    regions = Regions(torch.linspace(-1, 1, 32).reshape(1, 4, 8), (2, 2))
    query, memory = Query(torch.ones(1, 1, 12)), attention.memory((regions,))
    with torch.no_grad():
        training, evaluation = (attention.score.train(mode)(query, memory) for mode in (True, False))
    attention.score.train()
    return float((evaluation / training).mean())


class StopAfterEpoch(Callback):
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.should_stop = True


def test_it_falls_geometrically_and_stays_at_1(tmp_path: Path, reader: Shapes) -> None:
    seen = Watch(temperature)
    module = fit(tmp_path, reader, AttentionTemperature(16.0, 0.5), seen, max_epochs=2)
    steps = len(seen.seen)
    expected = [16.0 ** max(0.0, 1 - step / (steps / 2)) for step in range(steps)]
    assert expected[0] == 16
    assert expected[-1] == 1
    assert seen.seen == pytest.approx(expected, rel=1e-4)
    assert temperature(module) == 1


def test_a_high_one_makes_weights_even(tmp_path: Path, reader: Shapes) -> None:
    last = Watch(lambda module, *args: module.trainer.callback_metrics.copy(), "on_train_batch_end")
    fit(tmp_path, reader, AttentionTemperature(1e9, 1.0), last)
    first = last.seen[0]
    assert first["train/attention_entropy"] == pytest.approx(torch.tensor(144.0).log().item(), rel=1e-6)


@pytest.mark.nightly
def test_without_one_training_is_as_it_was(tmp_path: Path, reader: Shapes) -> None:
    plain, one, tempered = (
        weights(fit(tmp_path, reader, *callbacks))
        for callbacks in ((), (AttentionTemperature(),), (AttentionTemperature(8.0),))
    )
    assert not differing(plain, one)
    assert "captioner.decoder.attention.score.query.weight" in differing(plain, tempered)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*weights_only.*", "ignore:Checkpoint directory.*exists")
def test_a_resumed_training_goes_on_with_it(tmp_path: Path, reader: Shapes) -> None:
    whole = Watch(temperature)
    fit(tmp_path, reader, AttentionTemperature(16.0, 1.0), whole, max_epochs=2)
    parts = Watch(temperature)
    for resume, more in ((None, [StopAfterEpoch()]), (str(tmp_path / "last.ckpt"), [])):
        seed_everything(0, verbose=False)
        data = make_data(reader)
        checkpoints = ModelCheckpoint(tmp_path, "last", enable_version_counter=False)
        trainer = make_trainer(
            tmp_path, AttentionTemperature(16.0, 1.0), parts, checkpoints, *more,
            max_epochs=2, enable_checkpointing=True,
        )  # fmt: skip
        trainer.fit(make_training(data), data, ckpt_path=resume)
    assert parts.seen == pytest.approx(whole.seen)


@pytest.mark.parametrize(
    "arguments", [{"start": 0.5}, {"start": float("inf")}, {"share": 0.0}, {"share": 1.5}]
)
def test_arguments_outside_their_range_are_named(arguments: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"attention_temperature.{next(iter(arguments))}"):
        AttentionTemperature(**arguments)


def test_a_training_without_scores_or_end_is_refused(tmp_path: Path, reader: Shapes) -> None:
    with pytest.raises(UserError, match="no score"):
        fit(
            tmp_path, reader, AttentionTemperature(2.0),
            decoder=ShowAttendAndTellDecoder(MultiHeadAttention(2, 8), 8, 12), max_epochs=1,
        )  # fmt: skip
    with pytest.raises(UserError, match="no planned end"):
        fit(tmp_path, reader, AttentionTemperature(2.0), max_epochs=-1)
