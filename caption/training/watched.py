"""The metrics that training can watch, and whether lower or higher is better.

The best checkpoint, early stopping and schedules that wait for a plateau watch one of them.
"""

from __future__ import annotations

from typing import Literal

from caption.core.errors import UserError, did_you_mean

Mode = Literal["min", "max"]

AUTO = "auto"
"""In place of a direction: the metric's own. In place of early stopping's metric: that of the checkpoints."""
HIGHER = ("CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "pointing_accuracy", "attention_in_box")
UNDECIDED = (
    "attention_entropy", "attention_entropy_max", "attention_change", "attention_unseen", "attention_evenness",
    "pointing_chance", "pointing_other_word", "attention_in_box_chance", "pointing_mentions", "pointing_absent",
)  # fmt: skip
MODES: dict[str, Mode | None] = {
    **{f"val/{name}": "max" for name in HIGHER},
    **dict.fromkeys(("val/NLL", "train/NLL", "train/loss"), "min"),
    **{f"val/{name}": None for name in UNDECIDED},
}
"""The better direction of each metric of every training; None = neither is."""


def mode_of(metric: str, mode: str, option: str, own_metrics: bool = True) -> Mode:
    """The direction in which a watched metric is better.

    Args:
        metric: its name; one that is not in `MODES` is of a callback or an objective of the user's.
        mode: what the user says, or `AUTO`.
        option: where the user says it, for messages: "--checkpoint", "--early_stopping".
        own_metrics: whether callbacks of the user's may log metrics; objectives may log others that begin with train/.

    Raises:
        UserError: the metric does not exist, or its name and `mode` contradict each other.
    """
    possible = own_metrics or metric.startswith("train/")
    if metric not in MODES and (mode == AUTO or not possible or did_you_mean(metric, MODES)):
        decided = ", ".join(name for name, direction in MODES.items() if direction)
        raise UserError(
            f"{option}.monitor {metric}: training has no such metric{did_you_mean(metric, MODES)}. It has {decided}; "
            f"another metric, of a callback of your own, needs {option}.mode min or max"
        )
    own_mode = MODES.get(metric)
    if mode == AUTO:
        if own_mode is None:
            raise UserError(
                f"{option}.monitor {metric} is neither good nor bad: say {option}.mode min or max"
            )
        return own_mode
    if mode not in ("min", "max"):
        raise UserError(f"{option}.mode {mode}: choose min or max, or leave it out")
    if own_mode not in (None, mode):
        better = "lower" if own_mode == "min" else "higher"
        raise UserError(
            f"{metric} is better when it is {better}, so {option}.mode {mode} would keep the worst: leave it out"
        )
    return "min" if mode == "min" else "max"
