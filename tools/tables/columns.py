"""The columns of tables: their values by seed, how these are shown, and differences with their intervals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tools.tables.runs import Run, Runs
from tools.tables.significance import Estimate, over_seeds, with_corrections
from tools.tables.table import TrainedTable

LEARNED = 0.5


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    score: str = ""
    """A score of `caption test`, or of a measure."""
    test: str = ""
    """The test of the score; "" = that of the line."""
    field: str = ""
    """In place of a score, another entry of the run, or `seed`."""
    header: str = ""
    """In place of a score, a part of the header of the row's configuration."""
    area: str = ""
    """In place of a score, the area of deletion: attention, random, or gain, which is random less attention."""
    form: str = ".3f"
    per: Any = 1
    """The divisor of a value: a number, or a field."""
    show: str = ""
    """A name of SHOWN, or interval: the mean with its interval over seeds."""
    less: str | Mapping[str, str] = ""
    """The row from whose value of the same seed the difference is shown, or that of each row."""
    other: str = ""
    """With `show: interval`, the score from which the difference is shown."""
    other_test: str = ""
    """The same for its test."""
    better: str = "above"
    """The side of 0 on which a difference is better: above or below."""
    given: Mapping[str, Any] | None = None
    """Another column: verdicts have only the rows whose interval in it lies above its `above`."""
    margin: float = 0.0
    """A difference whose interval lies within it is called equal."""
    of: str = ""
    """A score that follows the value: "of 4.39"."""


SHOWN: dict[str, Callable[[list[Any], str], str]] = {
    "mean": lambda values, form: (
        f"{statistics.mean(values):{form}}"
        + (f" ± {statistics.stdev(values):{form.lstrip('+')}}" if len(values) > 1 else "")
    ),
    "average": lambda values, form: format(statistics.mean(values), form),
    "each": lambda values, form: (
        f"{statistics.mean(values):{form}}"
        + (f" ({', '.join(format(value, form) for value in values)})" if len(values) > 1 else "")
    ),
    "range": lambda values, form: (
        f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
    ),
    "sorted": lambda values, form: ", ".join(format(value, form) for value in sorted(values)),
    "list": lambda values, form: ", ".join(format(value, form) for value in values),
    "least": lambda values, form: format(min(values), form),
    "last": lambda values, form: format(values[-1], form),
    "count": lambda values, form: str(len(values)),
    "learned": lambda values, form: f"{sum(value >= LEARNED for value in values)} of {len(values)}",
}
"""How the values of several seeds are shown."""


def by_family(described: TrainedTable, names: Iterable[str]) -> dict[str, list[str]]:
    """The names of each family that has some, in their order."""
    of = {name: described.rows[name].header()["family"] for name in names}
    members = {family: [name for name in of if of[name] == family] for family in described.families}
    return {family: named for family, named in members.items() if named}


def values_of(column: Column, test: str, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The values by seed, without seeds that have none."""
    values = {}
    for seed, run in sorted(runs.items(), key=lambda item: int(item[0])):
        if column.field:
            entries: Mapping[str, Any] = {**run, "seed": int(seed)}
        else:
            entries = areas_of(run) if column.area else scores_of(run, column.test or test)
        value = entries.get(column.field or column.area or column.score)
        if value is not None:
            per = run[column.per] if isinstance(column.per, str) else column.per
            values[seed] = value if per == 1 else value / per
    return values


def scores_of(run: Run, test: str) -> dict[str, float]:
    """The scores of a test; of a test with several beams, those of the chosen beam."""
    scores: dict[str, float] = run["scores"].get(test) or run["scores"].get(f"{test} {run.get('beam')}") or {}
    return scores


def areas_of(run: Run) -> dict[str, float]:
    """Under the curves of deletion: means over all words of a run."""
    means = run.get("deletion")
    if not means:
        return {}
    areas = {name: float(np.average(means[name], weights=means["words"])) for name in ("attention", "random")}
    return areas | {"gain": areas["random"] - areas["attention"]}


def estimates_of(column: Column, test: str, runs: Runs) -> dict[str, Estimate]:
    """By row the mean or difference.

    All rows that a column compares are one family of tests, whichever of them a section shows.
    """
    estimates = {}
    for name in runs:
        reference = column.less if isinstance(column.less, str) else column.less.get(name)
        if reference is None or reference == name:
            continue
        values, base = values_of(column, test, runs[name]), None
        if reference or column.other or column.other_test:
            base = values_of(subtracted(column), test, runs.get(reference or name, {}))
        if estimate := over_seeds(values, base):
            estimates[name] = estimate
    return with_corrections(estimates)


def subtracted(column: Column) -> Column:
    """The column of what is subtracted."""
    return replace(column, score=column.other or column.score, test=column.other_test or column.test)


def with_interval(estimate: Estimate, column: Column) -> str:
    """A mean with its interval."""
    mean, low, high = (format(value, column.form).replace("-", "−") for value in estimate[:3])
    return f"{mean} [{low}, {high}]"
