"""A configuration that cannot be used is refused before data is read and before the run's folder is made."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import QUIET, Cli, check_refused
from torch.utils.data import get_worker_info

from caption.data.batches import CaptionedImages
from caption.data.shapes import Shapes

pytestmark = pytest.mark.slow

DECODER = "--model.decoder.init_args"
CYCLE = "--model.scheduler OneCycleLR --model.scheduler.max_lr [0.1,0.2] --model.scheduler.total_steps"
UNUSABLE = {
    "--seed_everything -1": "seed_everything: -1 is not in bounds",
    "--model.optimizer.init_args.lr -1": "section model.optimizer, ValueError: Invalid learning rate: -1.0",
    "--model.optimizer Adam --model.optimizer.betas [2,2]": "section model.optimizer",
    "--model.optimizer LBFGS": "section model.optimizer, ValueError: LBFGS",
    "--model.optimizer SparseAdam": "section model.optimizer, RuntimeError: SparseAdam",
    "--model.encoder_learning_rate -1": "model.optimizer gives the learning rate -1 before the first step",
    "--model.encoder_learning_rate .nan": "model.optimizer gives the learning rate nan before the first step",
    "--model.scheduler CosineAnnealingLR --model.scheduler.T_max 0": "section model.scheduler, ZeroDivisionError",
    "--model.scheduler ExponentialLR --model.scheduler.gamma -1": "gives the learning rate -0.001 after 1 of its",
    "--model.scheduler torch.optim.lr_scheduler.ReduceLROnPlateau --model.scheduler_interval step": "leave it out",
    f"{CYCLE} 1 --model.scheduler_interval epoch": "section model.scheduler, ValueError: Tried to step 2 times",
    f"{DECODER}.hidden_size -4": "hidden_size -4 of ShowAttendAndTellDecoder must be at least 1",
    f"{DECODER}.embedding_size 0": "embedding_size 0 of ShowAttendAndTellDecoder must be at least 1",
    f"{DECODER}.attention.init_args.score.init_args.size 0": "size 0 of AdditiveScore must be at least 1",
    f"{DECODER}.attention.init_args.score.init_args.layers 0": "layers 0 of AdditiveScore must be at least 1",
    "--model.encoder.init_args.widths=[]": "widths [] of SmallCNN must be two or more numbers, each at least 1",
    "--data.transform.size 1": "section model, RuntimeError: Calculated padded input size",
    "--data.transform.size 0": "image size 0 is not a size",
    "--trainer.accumulate_grad_batches 0": "trainer.accumulate_grad_batches is 0: give 1 or more",
    "--trainer.val_check_interval 0": "trainer.val_check_interval is 0: give a number of batches",
    "--trainer.limit_train_batches 0": "trainer.limit_train_batches is 0: give a number of batches",
    "--trainer.overfit_batches 2": "trainer.overfit_batches is not supported",
    "--model.objective Reinforce": "the score-function estimator trains attention that samples",
    f"{DECODER}.attention.init_args.alignment Multinoulli": "cross-entropy has no gradient for sampled attention",
    "--trainer.devices 999": "trainer.devices is 999, the number of processes on a CPU: choose 1 to",
    "--trainer.devices -3": "trainer.devices is -3, the number of processes on a CPU: choose 1 to",
    "--trainer.devices x": "trainer.devices is x: give a number of processes, numbers of GPUs such as [0,1], or auto",
    "--trainer.devices 1.5": "trainer.devices is 1.5: give a number of processes",
    "--trainer.devices [0,1]": "trainer.devices is [0, 1], the number of processes on a CPU: choose 1 to",
    "--checkpoint.monitor val/foo --checkpoint.mode min": "monitor val/foo: training has no such metric",
    "--early_stopping.monitor foo --early_stopping.mode min": "monitor foo: training has no such metric",
}
"""The message by the options."""


@pytest.mark.parametrize("options", UNUSABLE)
def test_refused_before_anything_is_read_or_written(cli: Cli, tiny: Path, options: str, monkeypatch):
    def read(reader: Shapes) -> None:
        raise AssertionError("data is read")

    monkeypatch.setattr(Shapes, "read", read)
    check_refused(cli("fit", "-c", tiny, *QUIET, *options.split()), UNUSABLE[options])
    assert not (tiny.parent / "run").exists()


def test_a_schedule_that_ends_before_training_does(cli: Cli, tiny: Path):
    ran = cli("fit", "-c", tiny, *QUIET, *f"{CYCLE} 3".split())
    check_refused(
        ran, "ends after 3 steps, and training has 10 steps: --model.scheduler.init_args.total_steps 10"
    )
    assert not (tiny.parent / "run" / "last.ckpt").exists()


def test_a_killed_worker_is_named(cli: Cli, tiny: Path, monkeypatch: pytest.MonkeyPatch):
    images = CaptionedImages.__getitems__

    def killed(self: CaptionedImages, keys: Any) -> Any:
        if get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return images(self, keys)

    monkeypatch.setattr(CaptionedImages, "__getitems__", killed)
    check_refused(cli("fit", "-c", tiny, *QUIET, "--data.workers=1"), "memory was full", "lower data.workers")
