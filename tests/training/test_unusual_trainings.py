"""Trainings that are rare and valid: a second `fit`, interrupted validations, schedules of two rates, long captions."""

from __future__ import annotations

import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.training import Watch, differing, make_data, make_trainer, make_training, weights
from pytorch_lightning.loggers import TensorBoardLogger
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, CyclicLR, OneCycleLR, ReduceLROnPlateau

from caption.attention import MultiHeadAttention
from caption.captioner import Captioner
from caption.core.errors import DataError, UserError
from caption.core.regions import Regions
from caption.data.order import similar_lengths
from caption.data.shapes import Shapes
from caption.decoders import ShowAndTellDecoder, TransformerDecoder
from caption.models import checkpoint
from caption.objectives.word_detectors import WordDetectors
from caption.training.attention_temperature import AttentionTemperature
from caption.training.callbacks import AttentionFigures
from caption.training.weight_averaging import AveragedWeights


def test_captions_that_are_dropped_are_not_always_the_longest():
    lengths = [*[10] * 94, *[40] * 6]
    seen: set[int] = set()
    for epoch in range(20):
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(100, generator=generator).tolist()
        batches = list(similar_lengths(order, lengths, 16, True, generator))
        assert [len(batch) for batch in batches] == [16] * 6
        seen |= {index for batch in batches for index in batch}
    assert {*range(94, 100)} <= seen


@pytest.mark.parametrize(
    ("scheduler", "one", "both"),
    [
        (partial(OneCycleLR, total_steps=10), {"max_lr": 1e-2}, {"max_lr": [1e-2, 1e-4]}),
        (
            partial(CyclicLR, max_lr=1e-2, cycle_momentum=False),
            {"base_lr": 1e-3},
            {"base_lr": [1e-3, 1e-5]},
        ),
    ],
    ids=["one cycle", "cyclic"],
)
def test_a_schedule_does_not_take_the_encoders_rate_away(
    scheduler: Any, one: dict[str, Any], both: dict[str, Any], tmp_path: Path, reader: Shapes
):
    data = make_data(reader)
    options = {"encoder_learning_rate": 1e-5, "optimizer": partial(Adam, lr=1e-3)}
    training = make_training(data, scheduler=partial(scheduler, **one), **options)
    with pytest.raises(UserError, match=r"such as \[0\.0.*, [0-9.e-]*\]"):
        training._make_optimizer()
    optimizer, _ = make_training(data, scheduler=partial(scheduler, **both), **options)._make_optimizer()
    assert optimizer.param_groups[1]["lr"] == pytest.approx(optimizer.param_groups[0]["lr"] / 100)


def test_a_plateau_is_looked_for_only_after_a_validation(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    training = make_training(data, scheduler=partial(ReduceLROnPlateau, patience=0, factor=0.5))

    def steps(module: Any, *args: Any) -> int:
        return module.trainer.lr_scheduler_configs[0].scheduler.last_epoch

    watch = Watch(steps, "on_train_epoch_start")
    make_trainer(tmp_path, watch, max_epochs=5, check_val_every_n_epoch=2).fit(training, data)
    assert watch.seen == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("interval", "end", "message"),
    [
        ("epoch", 2, "at its lowest after 2 of 3 epochs, and then rises again: .*T_max 3 ends there"),
        ("step", 14, "at its lowest after 14 of 15 steps, and then rises again: .*T_max 15 ends there"),
        ("epoch", 3, None),
        ("step", 15, None),
    ],
)
def test_a_warning_tells_that_the_rate_will_rise_again(
    tmp_path: Path, reader: Shapes, interval: str, end: int, message: str | None
):
    data = make_data(reader)
    training = make_training(
        data, scheduler=partial(CosineAnnealingLR, T_max=end), scheduler_interval=interval
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_trainer(tmp_path, max_epochs=3, limit_val_batches=0).fit(training, data)
    texts = [str(warning.message) for warning in caught if "rises again" in str(warning.message)]
    assert len(texts) == (message is not None)
    assert message is None or re.search(message, texts[0])


def test_a_second_fit_goes_on_from_the_first(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    checkpoint.save(make_training(data).captioner, tmp_path / "start.ckpt")
    training = make_training(data, warm_start=str(tmp_path / "start.ckpt"))
    make_trainer(tmp_path).fit(training, data)
    after_first = weights(training.captioner)
    begin = Watch(lambda module, *args: weights(module.captioner), "on_train_start")
    make_trainer(tmp_path, begin).fit(training, data)
    assert differing(begin.seen[0], after_first) == set()


def test_an_interrupted_validation_leaves_nothing(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    training = make_training(data)

    def interrupt(module: Any, *args: Any) -> None:
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        make_trainer(tmp_path, Watch(interrupt, "on_validation_batch_end")).fit(training, data)
    assert training.evaluator.answers
    make_trainer(tmp_path).test(training, data, verbose=False)
    assert len(training.evaluation.captions) == len(data.splits["test"])


def test_figures_are_of_the_averaged_weights(tmp_path: Path, reader: Shapes, monkeypatch: pytest.MonkeyPatch):
    drawn: list[dict[str, torch.Tensor]] = []
    describe = Captioner.describe

    def record(self: Captioner, *args: Any, **options: Any) -> Any:
        drawn.append(weights(self))
        return describe(self, *args, **options)

    monkeypatch.setattr(Captioner, "describe", record)
    validated = Watch(lambda module, *args: weights(module.captioner), "on_validation_batch_start")
    data = make_data(reader)
    callbacks = AveragedWeights(0.5), validated, AttentionFigures(2)
    trainer = make_trainer(tmp_path, *callbacks, logger=TensorBoardLogger(str(tmp_path)))
    trainer.fit(make_training(data), data)
    assert len(drawn) == 1
    assert differing(drawn[0], validated.seen[-1]) == set()


def test_a_temperature_leaves_no_hook_after_an_error(tmp_path: Path, reader: Shapes):
    def interrupt(module: Any, *args: Any) -> None:
        raise RuntimeError("interrupted")

    data = make_data(reader)
    training = make_training(data)
    callbacks = AttentionTemperature(2.0), Watch(interrupt, "on_train_batch_end")
    with pytest.raises(RuntimeError, match="interrupted"):
        make_trainer(tmp_path, *callbacks).fit(training, data)
    assert not any(part._forward_hooks for part in training.captioner.decoder.modules())


def test_the_longest_caption_of_a_transformer_fits():
    decoder = TransformerDecoder(
        MultiHeadAttention(2), layers=1, hidden_size=8, heads=2, inner_size=8, longest=3
    )
    decoder.build((6,), 9, 0, 1)
    memory = decoder.project((Regions(torch.zeros(1, 4, 6), (2, 2), None),))
    decoder(memory, torch.full((1, 1, 4), 4), torch.tensor([[4]]))  # three words, after the start token
    with pytest.raises(UserError, match=r"more than 3 words .* in training data\.max_words"):
        decoder(memory, torch.full((1, 1, 5), 4), torch.tensor([[5]]))


def test_detectors_begin_with_the_prior_whatever_is_masked():
    detectors = WordDetectors(6, 9, words=2)
    detectors.prior.fill_(0.5)
    torch.nn.init.zeros_(detectors.layer.weight)
    torch.nn.init.zeros_(detectors.layer.bias)
    mask = torch.arange(16)[None] < 4
    for real in (None, mask):
        scores = detectors(Regions(torch.zeros(1, 16, 6), (4, 4), real))
        torch.testing.assert_close(-detectors.log_absent(scores).expm1(), torch.full((1, 2), 0.5))


def test_one_image_cannot_be_normalised():
    decoder = ShowAndTellDecoder(6, 7, normalise_image=True)
    decoder.build((6,), 9, 0, 1)
    memory = decoder.project((Regions(torch.zeros(1, 4, 6), (2, 2), None),))
    with pytest.raises(UserError, match="batch of one image"):
        decoder.train().start(memory)
    decoder.eval().start(memory)


def test_data_without_validation_images_has_a_remedy(tmp_path: Path, reader: Shapes):
    data = make_data(reader)
    del data.splits["val"]
    with pytest.raises(DataError, match=r"fractions .* or train without validation"):
        make_trainer(tmp_path).fit(make_training(data), data)
