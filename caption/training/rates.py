"""Optimizer options and schedule of a resumed training: those of the configuration, if it has changed.

Lightning restores them with the optimizer's state, so that a changed learning rate or schedule would have no effect.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from caption.training.optimizers import Interval

COUNTS = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")
"""Entries of the state of a schedule that waits for a plateau."""
MOST_STEPS = 1_000_000


def configured_rates(
    optimizer: Optimizer, schedule: LRScheduler | None, interval: Interval
) -> dict[str, Any]:
    """Options of an optimizer's groups and of its schedule before the first step, in plain types."""
    groups = [
        {name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups
    ]
    kind = {"kind": type(schedule).__name__, "interval": interval}
    state = None if schedule is None else {**kind, **schedule.state_dict()}
    return json.loads(json.dumps({"groups": groups, "schedule": state}, default=str))


def check_rates(earlier: Any, schedule_state: Any) -> dict[str, Any]:
    """The part of a checkpoint's rates and of the state of its schedule that `adopt_rates` reads.

    Raises:
        ValueError: they are not what `configured_rates` and a schedule give.
    """
    rates = [group["lr"] for group in earlier["groups"]]
    state = schedule_state or {}
    counts = {name: state[name] for name in ("mode", *COUNTS) if name in state}
    if not all(isinstance(rate, (int, float)) and rate >= 0 for rate in rates):
        raise ValueError("rates are negative")
    if not all(isinstance(count, (int, float)) for name, count in counts.items() if name != "mode"):
        raise ValueError("counts of the schedule are not numbers")
    return {"rates": rates, "counts": counts, "interval": (earlier["schedule"] or {}).get("interval")}


def adopt_rates(
    optimizer: Optimizer,
    schedule: LRScheduler | None,
    fresh: Optimizer,
    fresh_schedule: LRScheduler | None,
    earlier: Mapping[str, Any],
    steps: int,
) -> None:
    """Give a restored optimizer the options of a fresh one, and its schedule's rates at this place.

    A schedule continues as if it had been used from the beginning. One that waits for a plateau keeps its
    counts, and its reductions so far apply to the new rates.

    Args:
        optimizer: restored; changed.
        schedule: its schedule, of the new configuration; changed.
        fresh: an optimizer of the new configuration.
        fresh_schedule: its schedule.
        earlier: from `check_rates`.
        steps: of the schedule so far.
    """
    reductions = [1.0] * len(fresh.param_groups)
    if isinstance(fresh_schedule, ReduceLROnPlateau):
        counts = earlier["counts"]
        if counts.get("mode") == fresh_schedule.mode:
            fresh_schedule.load_state_dict({name: counts[name] for name in COUNTS if name in counts})
            pairs = zip(optimizer.param_groups, earlier["rates"], strict=True)
            reductions = [group["lr"] / rate if rate else 1.0 for group, rate in pairs]
    elif fresh_schedule is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*lr_scheduler.step.* before .*optimizer.step")
            for _ in range(min(steps, MOST_STEPS)):
                fresh_schedule.step()
    for group, options, reduction in zip(optimizer.param_groups, fresh.param_groups, reductions, strict=True):
        for name in group.keys() - options.keys():
            del group[name]
        group.update({name: value for name, value in options.items() if name != "params"})
        group["lr"] *= reduction
    if schedule is not None and fresh_schedule is not None:
        schedule.load_state_dict(fresh_schedule.state_dict())
