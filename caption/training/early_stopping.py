"""Early stopping: when training ends before its last epoch, and whether it has ended a run that is resumed."""

from __future__ import annotations

from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason


def has_stopped(early_stopping: EarlyStopping) -> bool:
    """Whether it had ended the run; not if its patience has been raised since."""
    reason = early_stopping.stopping_reason
    if reason == EarlyStoppingReason.PATIENCE_EXHAUSTED:
        return early_stopping.wait_count >= early_stopping.patience
    return reason != EarlyStoppingReason.NOT_STOPPED
