"""Defaults of training that several places need: what is watched, and where checkpoints are."""

from __future__ import annotations

from typing import Any

MONITOR = "val/CIDEr"
"""The score that chooses the best checkpoint, ends training early, and steps schedules that wait for a plateau."""
BEST, LAST = "best.ckpt", "last.ckpt"
"""Checkpoints in the folder of a run."""
OPTIONS: dict[str, Any] = {
    "checkpoint.monitor": MONITOR,
    "checkpoint.mode": "max",
    "checkpoint.filename": BEST.removesuffix(".ckpt"),
    "checkpoint.enable_version_counter": False,
    "trainer.default_root_dir": "runs/default",
}
"""Options of the command line whose defaults differ from Lightning's."""
