"""Averaged weights: validated, saved, and not trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.training import Watch, make_data, make_trainer, make_training, weights
from pytorch_lightning.callbacks import ModelCheckpoint

from caption.data.features.key import weights_digest
from caption.data.shapes import Shapes
from caption.models import checkpoint
from caption.training.weight_averaging import AveragedWeights


@pytest.mark.nightly
def test_the_average_is_validated_and_saved_and_not_trained(tmp_path: Path, reader: Shapes):
    """It is resumed in test_resuming.py."""
    steps = Watch(lambda module, *args: weights(module.captioner.decoder), "on_train_batch_end")
    before = Watch(lambda module, *args: weights_digest(module.captioner.encoder), "on_train_batch_start")
    validated = Watch(lambda module, *args: weights(module.captioner.decoder), "on_validation_batch_start")
    data = make_data(reader)
    training = make_training(data)
    with torch.no_grad():  # an average of -0.0 and -0.0 would be 0.0
        next(training.captioner.encoder.parameters()).view(-1)[0] = -0.0
    callbacks = (AveragedWeights(0.8), ModelCheckpoint(tmp_path, "last"), steps, before, validated)
    make_trainer(tmp_path, *callbacks, enable_checkpointing=True, max_epochs=2).fit(training, data)
    average = steps.seen[0]
    for after in steps.seen[1:]:
        average = {name: 0.8 * average[name] + 0.2 * value for name, value in after.items()}
    saved = checkpoint.load(tmp_path / "last.ckpt").decoder.state_dict()
    for name, value in average.items():
        torch.testing.assert_close(validated.seen[-1][name], value)
        torch.testing.assert_close(saved[name], value)
    assert not torch.equal(steps.seen[-1]["embed.weight"], average["embed.weight"])
    # The encoder is frozen: to the last bit, or a store of its regions would not be its own any more.
    assert weights_digest(training.captioner.encoder) == before.seen[0]
