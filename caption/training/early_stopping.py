"""Early stopping: when training ends before its last epoch, and whether it has ended a run that is resumed."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason

from caption.training.defaults import MONITOR

OPTIONS: dict[str, Any] = {
    "early_stopping.monitor": MONITOR,
    "early_stopping.mode": "max",
    "early_stopping.patience": 5,
    # A trial run of a few steps never validates, and must not fail for that. The checkpoint callback reports a metric
    # that does not exist.
    "early_stopping.strict": False,
}
"""Options of Lightning's callback on the command line."""


def has_stopped(early_stopping: EarlyStopping) -> bool:
    """Whether it had ended the run; not if its patience has been raised since."""
    reason = early_stopping.stopping_reason
    if reason == EarlyStoppingReason.PATIENCE_EXHAUSTED:
        return early_stopping.wait_count >= early_stopping.patience
    return reason != EarlyStoppingReason.NOT_STOPPED
