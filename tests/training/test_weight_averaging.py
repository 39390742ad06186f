"""The moving average of the weights: what is validated, saved and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.training import Watch, make_data, make_training
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor

import caption
from caption.data.shapes import Shapes
from caption.features.key import weights_digest
from caption.objectives import CrossEntropy, Entropy
from caption.training.callbacks import AveragedWeights

DECAY = 0.8


def fit(folder: Path, reader: Shapes, epochs: int, *callbacks: Any, resume: str | None = None) -> Any:
    seed_everything(0, verbose=False)
    data = make_data(reader)
    training = make_training(data, objective=CrossEntropy([Entropy(0.1, after=7)]))
    with torch.no_grad():  # an average of -0.0 and -0.0 would be 0.0
        next(training.captioner.encoder.parameters()).view(-1)[0] = -0.0
    trainer = Trainer(
        accelerator="cpu", devices=1, max_epochs=epochs, num_sanity_val_steps=0, default_root_dir=folder,
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[AveragedWeights(DECAY), ModelCheckpoint(folder, "last"), *callbacks],
    )  # fmt: skip
    trainer.fit(training, data, ckpt_path=resume)
    return training


def decoder_weights(module: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.captioner.decoder.named_parameters()}


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*weights_only.*", "ignore:Checkpoint directory.*exists")
def test_the_average_is_validated_and_saved_and_training_goes_on_from_the_weights(
    tmp_path: Path, reader: Shapes
):
    steps = Watch(lambda module, *args: decoder_weights(module), "on_train_batch_end")
    before = Watch(lambda module, *args: weights_digest(module.captioner.encoder), "on_train_batch_start")
    validated = Watch(lambda module, *args: decoder_weights(module), "on_validation_batch_start")
    whole = fit(tmp_path / "whole", reader, 2, steps, before, validated)
    average = steps.seen[0]
    for after in steps.seen[1:]:
        average = {name: DECAY * average[name] + (1 - DECAY) * value for name, value in after.items()}
    saved = dict(caption.load(tmp_path / "whole" / "last.ckpt").decoder.named_parameters())
    for name, value in average.items():
        torch.testing.assert_close(validated.seen[-1][name], value)
        torch.testing.assert_close(saved[name], value)
    assert not torch.equal(steps.seen[-1]["embed.weight"], average["embed.weight"])
    # The encoder is frozen: to the last bit, or a store of its regions would not be its own any more.
    assert weights_digest(whole.captioner.encoder) == before.seen[0]

    fit(tmp_path / "parts", reader, 1)
    fit(tmp_path / "parts", reader, 2, resume=str(tmp_path / "parts" / "last.ckpt"))
    resumed = sorted((tmp_path / "parts").glob("*.ckpt"), key=lambda path: path.stat().st_mtime)[-1]
    again = dict(caption.load(resumed).decoder.named_parameters())
    for name, value in saved.items():
        torch.testing.assert_close(again[name], value)
