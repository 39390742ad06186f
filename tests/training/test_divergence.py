"""Numbers that go wrong: NaN and infinite losses, gradients and weights, and precision that a processor lacks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command_line import QUIET, Ran
from helpers.training import Watch, fit
from torch.optim import Adam

from caption.core.errors import UserError
from caption.data.shapes import Shapes
from caption.training import precision
from caption.training.module import CaptionTraining

Cli = Callable[..., Ran]


def change(
    monkeypatch: pytest.MonkeyPatch, at: int, loss: Callable[[Any, CaptionTraining], Any]
) -> dict[int, list[int]]:
    """Change the loss of one step; the image ids of each step."""
    ids: dict[int, list[int]] = {}
    step = CaptionTraining.training_step

    def changed(self: CaptionTraining, batch: Any, index: int) -> Any:
        ids[self.global_step] = list(batch.ids)
        outputs = step(self, batch, index)
        if self.global_step == at:
            outputs["loss"] = loss(outputs["loss"], self)
        return outputs

    monkeypatch.setattr(CaptionTraining, "training_step", changed)
    return ids


@pytest.mark.nightly
def test_a_loss_that_is_not_finite_ends_training(cli: Cli, tiny: Path, tmp_path: Path, monkeypatch):
    ids = change(monkeypatch, 7, lambda loss, module: loss * math.nan)
    ran = cli("fit", "-c", tiny, *QUIET)
    assert (ran.code, ran.out) == (2, "")
    last, file = tmp_path / "run" / "last.ckpt", tmp_path / "run" / "logs" / "version_0" / "diverged.json"
    assert "the loss is nan" in ran.err
    assert f"at step 7 (epoch 2), for the images in {file}" in ran.err
    assert f"the last good checkpoint is {last}. Lower the learning rate (model.optimizer" in ran.err
    report = json.loads(file.read_text())
    assert (report["step"], report["epoch"]) == (7, 2)
    assert report["batches"] == [{"batch": 2, "loss": "nan", "ids": ids[7]}]
    assert len(ids[7]) == 8
    contents = torch.load(last, weights_only=True)
    assert contents["global_step"] == 5
    assert all(value.isfinite().all() for value in contents["state_dict"].values())


def test_a_loss_far_above_that_of_an_untrained_model_ends_training(tmp_path: Path, reader: Shapes):
    said = (
        r"\(epoch 1\), and that of an untrained model 3\.5\. .* no checkpoint yet\. Lower the learning rate"
    )
    with pytest.raises(UserError, match=said):
        fit(tmp_path, reader, optimizer=lambda groups: Adam(groups, lr=1e6))


def test_an_infinite_gradient_ends_training(tmp_path: Path, reader: Shapes, monkeypatch):
    def steep(loss: Any, module: CaptionTraining) -> Any:
        weight = next(module.captioner.decoder.parameters())
        return loss + 1e-30 * (weight - weight.detach()).sum() * 1e38 * 1e38

    change(monkeypatch, 3, steep)
    with pytest.raises(UserError, match=r"gradient's norm (inf|nan) at step 3.* no checkpoint yet"):
        fit(tmp_path, reader)


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path, reader: Shapes):
    training = fit(tmp_path, reader, max_steps=1, limit_val_batches=0)
    next(training.captioner.decoder.parameters()).data.fill_(math.inf)
    with pytest.raises(UserError, match="not finite at step"):
        training.trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert not (tmp_path / "last.ckpt").exists()


def test_the_norm_of_the_gradient_is_logged_before_it_is_clipped(tmp_path: Path, reader: Shapes, monkeypatch):
    norms: list[float] = []

    def clip(self: CaptionTraining, optimizer: Any, *args: Any, **options: Any) -> None:
        squares = [p.grad.square().sum() for p in self.parameters() if p.grad is not None]
        norms.append(float(torch.stack(squares).sum().sqrt()))
        self.clip_gradients(optimizer, gradient_clip_val=0.001)

    monkeypatch.setattr(CaptionTraining, "configure_gradient_clipping", clip)
    metrics = lambda module, *args: float(module.trainer.callback_metrics["train/gradient_norm"])  # noqa: E731
    logged = Watch(metrics, "on_train_batch_end")
    fit(tmp_path, reader, logged, limit_val_batches=0)
    assert len(norms) == 5
    assert logged.seen == pytest.approx(norms, rel=1e-4)


def test_half_precision_is_to_blame_before_the_learning_rate(tmp_path: Path, reader: Shapes, monkeypatch):
    change(monkeypatch, 0, lambda loss, module: loss * math.inf)
    with pytest.raises(UserError, match=r"ends at 65,504: set trainer\.precision to bf16-true") as caught:
        fit(tmp_path, reader, precision="16-true")
    assert "learning rate" not in str(caught.value)


def test_lower_precision_is_measured_and_named_where_it_is_slower(monkeypatch, recwarn):
    cpu, measured = torch.device("cpu"), {torch.bfloat16: 0.0012, torch.float32: 0.001}
    monkeypatch.setattr(precision, "seconds", measured.__getitem__)  # of no other kind
    for name, device in (("bf16-mixed", cpu), ("32-true", cpu), ("16-mixed", torch.device("cuda"))):
        precision.warn_if_slower(name, device)
    assert not recwarn.list
    measured[torch.bfloat16] = 0.025
    with pytest.warns(UserWarning, match=r"25\.0 times .*bf16-mixed"):
        precision.warn_if_slower("bf16-mixed", cpu)
