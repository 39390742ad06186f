"""Numbers that go wrong: NaN and infinite losses, gradients and weights, and precision that a processor lacks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.command_line import Ran
from helpers.training import Watch, fit

from caption.data.shapes import Shapes
from caption.training import precision
from caption.training.divergence import StopOnDivergence
from caption.training.module import CaptionTraining

Cli = Callable[..., Ran]
QUIET = ("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false")


def change(
    monkeypatch: pytest.MonkeyPatch, at: int, loss: Callable[[Any, CaptionTraining], Any]
) -> dict[int, list[int]]:
    """Change the loss of one step; the image ids of each step."""
    ids: dict[int, list[int]] = {}
    step = CaptionTraining.training_step

    def changed(self: CaptionTraining, batch: Any, index: int) -> Any:
        ids[self.global_step] = list(batch.ids)
        value = step(self, batch, index)
        return loss(value, self) if self.global_step == at else value

    monkeypatch.setattr(CaptionTraining, "training_step", changed)
    return ids


def finite(path: Path) -> bool:
    return all(value.isfinite().all() for value in torch.load(path, weights_only=True)["state_dict"].values())


@pytest.mark.nightly
def test_a_loss_that_is_not_finite_ends_training(cli: Cli, tiny: Path, tmp_path: Path, monkeypatch):
    ids = change(monkeypatch, 7, lambda loss, module: loss * math.nan)
    ran = cli("fit", "-c", tiny, *QUIET)
    assert (ran.code, ran.out) == (2, "")
    last, message = tmp_path / "run" / "last.ckpt", ran.err.splitlines()[-1]
    assert "the loss is nan" in message
    assert f"at step 7 (epoch 1), for the images in {tmp_path}/run/logs/version_0/diverged.json" in message
    assert (
        f"the last good checkpoint is {last}. Lower the learning rate (model.optimizer.init_args.lr)"
        in message
    )
    report = json.loads((tmp_path / "run" / "logs" / "version_0" / "diverged.json").read_text())
    assert (report["step"], report["epoch"]) == (7, 1)
    assert report["batches"] == [{"batch": 2, "loss": "nan", "ids": ids[7]}]
    assert len(ids[7]) == 8
    assert torch.load(last, weights_only=True)["global_step"] == 5
    assert finite(last)
    assert finite(last.with_name("best.ckpt"))


@pytest.mark.nightly
def test_a_loss_far_above_that_of_an_untrained_model_ends_training(cli: Cli, tiny: Path, tmp_path: Path):
    ran = cli("fit", "-c", tiny, *QUIET, "--model.optimizer", "Adam", "--model.optimizer.lr", "1e6")
    assert ran.code == 2
    message = ran.err.splitlines()[-1]
    assert (
        "(epoch 0), and that of an untrained model 3.5. Training has stopped; there is no checkpoint yet"
        in message
    )
    assert "Lower the learning rate" in message
    assert not [*(tmp_path / "run").glob("*.ckpt")]


def test_an_infinite_gradient_ends_training(cli: Cli, tiny: Path, monkeypatch):
    def steep(loss: Any, module: CaptionTraining) -> Any:
        weight = next(module.captioner.decoder.parameters())
        return loss + 1e-30 * (weight - weight.detach()).sum() * 1e38 * 1e38

    change(monkeypatch, 3, steep)
    ran = cli("fit", "-c", tiny, *QUIET)
    assert ran.code == 2
    assert "the gradient's norm inf" in ran.err or "the gradient's norm nan" in ran.err
    assert "at step 3" in ran.err
    assert "there is no checkpoint yet" in ran.err


@pytest.mark.nightly
def test_weights_that_are_not_finite_are_not_written(cli: Cli, tiny: Path, tmp_path: Path, monkeypatch):
    original = CaptionTraining.on_validation_epoch_end

    def spoil(self: CaptionTraining) -> None:
        original(self)
        if self.current_epoch == 1:
            next(self.captioner.decoder.parameters()).data.fill_(math.inf)

    monkeypatch.setattr(CaptionTraining, "on_validation_epoch_end", spoil)
    ran = cli("fit", "-c", tiny, *QUIET)
    assert ran.code == 2
    assert "are not finite" in ran.err
    assert all(finite(tmp_path / "run" / f"{name}.ckpt") for name in ("best", "last"))


def test_the_norm_of_the_gradient_is_logged_before_it_is_clipped(
    tmp_path: Path, reader: Shapes, monkeypatch: pytest.MonkeyPatch
):
    norms: list[float] = []

    def clip(self: CaptionTraining, optimizer: Any, *args: Any, **options: Any) -> None:
        squares = [p.grad.square().sum() for p in self.parameters() if p.grad is not None]
        norms.append(float(torch.stack(squares).sum().sqrt()))
        self.clip_gradients(optimizer, gradient_clip_val=0.001)

    monkeypatch.setattr(CaptionTraining, "configure_gradient_clipping", clip)
    logged = Watch(
        lambda module, *args: float(module.trainer.callback_metrics["train/gradient_norm"]),
        "on_train_batch_end",
    )
    fit(tmp_path, reader, logged, limit_val_batches=0)
    assert len(norms) == 5
    assert logged.seen == pytest.approx(norms, rel=1e-4)


def test_half_precision_is_to_blame_before_the_learning_rate(cli: Cli, tiny: Path, monkeypatch):
    change(monkeypatch, 0, lambda loss, module: loss * math.inf)
    ran = cli("fit", "-c", tiny, *QUIET, "--trainer.precision", "16-true")
    assert ran.code == 2
    assert "Half precision ends at 65,504: set trainer.precision to bf16-true" in ran.err
    assert "learning rate" not in ran.err


def test_with_a_scaler_steps_of_infinite_gradients_are_counted():
    logged: dict[str, Any] = {}
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight])
    trainer = SimpleNamespace(
        precision_plugin=SimpleNamespace(scaler=object()),
        strategy=SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision),
    )
    module = SimpleNamespace(log=lambda name, value: logged.update({name: float(value)}))
    callback = StopOnDivergence()
    for gradient in (1.0, math.inf, math.nan, 2.0):
        callback.on_train_batch_start(trainer, module, SimpleNamespace(ids=[1]), 0)  # type: ignore[arg-type]
        callback.on_before_backward(trainer, module, torch.tensor(1.0))  # type: ignore[arg-type]
        weight.grad = torch.full((2,), gradient)
        callback.on_before_optimizer_step(trainer, module, optimizer)  # type: ignore[arg-type]
    assert logged["train/skipped_steps"] == 2
    again = StopOnDivergence()
    again.load_state_dict(callback.state_dict())
    assert again.skipped == 2


# -- precision -------------------------------------------------------------------------------------------------

CPU = torch.device("cpu")


def test_lower_precision_is_measured_and_named_where_it_is_slower(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
):
    monkeypatch.setattr(precision, "seconds", lambda dtype: 0.0012 if dtype == torch.bfloat16 else 0.001)
    precision.warn_if_slower("bf16-mixed", CPU)
    monkeypatch.setattr(precision, "seconds", lambda dtype: pytest.fail("nothing is to be measured"))
    precision.warn_if_slower("32-true", CPU)
    precision.warn_if_slower("16-mixed", torch.device("cuda"))
    assert not recwarn.list
    monkeypatch.setattr(precision, "seconds", lambda dtype: 0.025 if dtype == torch.bfloat16 else 0.001)
    with pytest.warns(
        UserWarning, match=r"25\.0 times as long with bf16-mixed.*leave out trainer\.precision"
    ):
        precision.warn_if_slower("bf16-mixed", CPU)
