"""Older checkpoints brought up to date, one step per format. `caption.checkpoint` has the layout.

1   first release
2   the objective Reinforce has its baseline as a part of its own, instead of `baseline_decay` and a buffer
"""

from __future__ import annotations

from typing import Any

FORMAT = 2


def upgrade(contents: dict[str, Any]) -> None:
    """Change the contents of a checkpoint of any earlier format, in place, to what this release writes."""
    if contents["captioner"]["format"] == 1:
        _own_baseline(contents)
        contents["captioner"]["format"] = 2


def _own_baseline(contents: dict[str, Any]) -> None:
    state = contents["state_dict"]
    if "objective.baseline" in state:
        state["objective.baseline.value"] = state.pop("objective.baseline")
    objective = contents.get("hyper_parameters", {}).get("objective") or {}
    arguments = objective.get("init_args", {})
    if "baseline_decay" in arguments:
        decay = arguments.pop("baseline_decay")
        arguments["baseline"] = {
            "class_path": "caption.objectives.MovingAverage",
            "init_args": {"decay": decay},
        }
