"""Frozen and fine-tuned encoders, their learning rates, and the statistics of their BatchNorm layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.training import Watch, differing, fit, make_data, make_training, weights
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

from caption.data.shapes import Shapes
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
    options = {"encoder_learning_rate": 1e-3, "frozen_statistics": frozen_statistics}
    training = fit(tmp_path, reader, start, max_epochs=2, **options)
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
