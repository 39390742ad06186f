"""Checkpoints of earlier formats and with class paths of earlier releases, brought up to date.

Formats, all read by this release:

    1   first release
    2   the baseline of the objective Reinforce is a separate part instead of `baseline_decay` and a buffer

Damage is noticed in files of every format: the container has a checksum of each tensor (`archive`, `tensor_file`).
"""

from __future__ import annotations

from typing import Any

from caption.parts import current_paths

FORMAT = 2


def upgrade(contents: dict[str, Any]) -> None:
    """Convert the contents of a checkpoint of any earlier format to the current one, in place."""
    for name in ("captioner", "hyper_parameters"):
        if name in contents:
            contents[name] = current_paths(contents[name])
    if contents["captioner"]["format"] == 1:
        state = contents["state_dict"]
        if "objective.baseline" in state:
            state["objective.baseline.value"] = state.pop("objective.baseline")
        objective = contents.get("hyper_parameters", {}).get("objective") or {}
        arguments = objective.get("init_args", {})
        if "baseline_decay" in arguments:
            decay = {"decay": arguments.pop("baseline_decay")}
            arguments["baseline"] = {"class_path": "caption.objectives.MovingAverage", "init_args": decay}
        contents["captioner"]["format"] = 2
