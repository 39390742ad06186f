"""Frozen and fine-tuned encoders, their learning rates, and the statistics of their BatchNorm layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.training import Watch, differing, fit, make_data, make_training, weights
from torch import nn
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

from caption.core.errors import UserError
from caption.data.shapes import Shapes
from caption.encoders import SmallCNN
from caption.encoders.fine_tuning import FrozenStatistics, batch_norm_warning
from caption.objectives import GuidedAttention


def test_a_frozen_encoder_does_not_change_in_any_way(tmp_path: Path, reader: Shapes):
    modes = Watch(lambda module, *args: {layer.training for layer in module.captioner.encoder.modules()})
    start = Watch(lambda module: weights(module.captioner), "on_fit_start")
    training = fit(tmp_path, reader, modes, start, max_epochs=2, objective=GuidedAttention(words=5))
    changed = differing(start.seen[0], weights(training.captioner))
    assert modes.seen == [{False}] * 10
    assert not [name for name in changed if name.startswith("encoder.")]  # running statistics included
    assert [name for name in changed if name.startswith("decoder.")]
    encoder = {*training.captioner.encoder.parameters()}
    assert not any(parameter.requires_grad for parameter in encoder)
    (group,) = training.optimizers().param_groups
    assert {*group["params"]} == {*training.parameters()} - encoder


@pytest.mark.parametrize("frozen_statistics", [False, True])
def test_statistics_move_unless_they_are_frozen(tmp_path: Path, reader: Shapes, frozen_statistics: bool):
    start = Watch(lambda module: weights(module.captioner.encoder), "on_fit_start")
    callbacks = (start, FrozenStatistics()) if frozen_statistics else (start,)
    training = fit(tmp_path, reader, *callbacks, max_epochs=2, encoder_learning_rate=1e-3)
    changed = differing(start.seen[0], weights(training.captioner.encoder))
    statistics = () if frozen_statistics else ("running_mean", "running_var", "num_batches_tracked")
    assert {name.rpartition(".")[2] for name in changed} == {"weight", "bias", *statistics}


def test_an_encoder_has_its_own_learning_rate_and_a_schedule_goes_by_epochs(tmp_path: Path, reader: Shapes):
    rates = Watch(lambda module, *args: [group["lr"] for group in module.optimizers().param_groups])
    options = {
        "optimizer": lambda groups: Adam(groups, lr=0.02),
        "scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=2),
        "encoder_learning_rate": 0.01,
    }
    training = fit(tmp_path, reader, rates, max_epochs=2, limit_val_batches=0, **options)
    assert rates.seen[:5] == [[0.02, 0.01]] * 5
    assert rates.seen[5:] == [pytest.approx([0.01, 0.005])] * 5
    group = training.optimizers().param_groups[1]
    assert {*group["params"]} == {*training.captioner.encoder.parameters()}


def test_a_plateau_is_one_of_cider(reader: Shapes):
    training = make_training(make_data(reader), scheduler=lambda optimizer: ReduceLROnPlateau(optimizer))
    _, (schedule,) = training.configure_optimizers()
    assert schedule["monitor"] == "val/CIDEr"


def test_batch_norm_of_a_learning_encoder_is_warned_about():
    encoder = SmallCNN((4, 4))
    assert "--trainer.sync_batchnorm true" in str(batch_norm_warning(encoder, "cuda"))
    assert "only on GPUs" in str(batch_norm_warning(encoder, "cpu"))
    assert batch_norm_warning(nn.Conv2d(3, 4, 1), "cpu") is None
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(encoder)
    assert batch_norm_warning(synchronised, "cuda") is None
    with pytest.raises(UserError, match=r"trainer\.sync_batchnorm"):
        batch_norm_warning(synchronised, "cpu")
