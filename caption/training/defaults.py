"""Defaults of training: what is watched, where checkpoints are, and the options of `caption fit` that follow."""

from __future__ import annotations

from typing import Any

from caption.training.watched import AUTO

MONITOR = "val/CIDEr"
"""The score that chooses the best checkpoint, ends training early, and steps schedules that wait for a plateau, unless
the configuration names another."""
BEST, LAST = "best.ckpt", "last.ckpt"
"""Checkpoints in the folder of a run."""
OPTIONS: dict[str, Any] = {
    "checkpoint.monitor": MONITOR,
    "checkpoint.mode": AUTO,
    "checkpoint.filename": BEST.removesuffix(".ckpt"),
    "checkpoint.enable_version_counter": False,
    "trainer.default_root_dir": "runs/default",
    # It would have two rows, the captioner and the objective.
    "trainer.enable_model_summary": False,
    "early_stopping.monitor": AUTO,
    "early_stopping.mode": AUTO,
    "early_stopping.patience": 5,
    # A trial run of a few steps never validates, and must not fail for that. The checkpoint callback reports a metric
    # that does not exist.
    "early_stopping.strict": False,
}
"""Options of the command line whose defaults differ from Lightning's."""
