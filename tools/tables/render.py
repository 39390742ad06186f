"""The sections of a document, from the published runs of a table.

A section is a mapping in the table's YAML file:

    section    its name in the document; several of the same name follow each other
    document   if not that of the table
    text       above the table, with {command}, {rows}, {signature}, {chance}, {even} and {most}, the
               bounds of the entropy of even maps
    head       of the first column
    rows       names, if not all
    lines      by test: the text of the second column. A row has a line for each of these tests that it has
    line       the head of the second column, if not "at test"
    families   true: rows are grouped by family, below a line with its name; flat: without that line
    order      a score of the first test; within a family, rows are sorted by it, the lowest first
    columns    see `Column`
    verdicts   true: for each column, how many mechanisms are above and below 0, in place of a row for each
    apart      {score: distance}: after the verdicts, the rows whose seeds are farther apart
    differences  in place of rows and columns: a line for each pair of rows, score and test; see `_differences`
    margin     {score: distance}: a difference whose interval lies within it is called equal
    show       how the values of seeds are shown, if a column has no `show`: a name of SHOWN
    empty      the text of cells without a value
    also       further lines, at the end
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from tools.documents import table
from tools.tables.runs import Run, Runs
from tools.tables.significance import LEVEL, Estimate, holm, over_seeds, quantile
from tools.tables.table import Row, TrainedTable

LEARNED = 0.5
PLANNED = (3, 5, 10)
"""Numbers of seeds for which verdicts have the smallest difference that they can tell."""


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
    given: Mapping[str, Any] | None = None
    """Another column: verdicts have only the rows whose interval in it lies above its `above`."""
    of: str = ""
    """A score that follows the value: "of 4.39"."""


SCORE_TITLES = {
    "NLL": "NLL per word",
    "attention_entropy": "H[α], nats",
    "attention_in_box": "mass in the box",
    "pointing_accuracy": "pointing",
}
"""Of scores in tables of differences; others have their own names."""
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


def sections(described: TrainedTable, runs: Runs) -> dict[str, str]:
    """The Markdown of each section, by its name."""
    texts: dict[str, list[str]] = {}
    for section in described.sections:
        text = section.get("text", "").format(**_facts(described, runs))
        shown = _differences if "differences" in section else _verdicts if section.get("verdicts") else _table
        texts.setdefault(section["section"], []).append(
            f"{text}\n\n{shown(described, section, runs)}".strip()
        )
    return {name: "\n\n".join(parts) for name, parts in texts.items()}


def _table(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    columns = [Column(**column) for column in section["columns"]]
    lines = section.get("lines")
    untrained = all(column.header for column in columns)  # rows without runs have a header, too
    names = [name for name in section.get("rows", described.rows) if runs.get(name) or untrained]
    estimates = {
        (column.title, test): _estimates(column, test, names, runs)
        for column in columns
        for test in lines or ["test"]
        if column.show == "interval"
    }
    rows: list[list[str]] = []
    for family, members in _families(described, section, names, runs):
        if family and section["families"] is True:
            heads = [described.families[family] if column.header == "equation" else "" for column in columns]
            rows.append([f"**{family}**", *heads])
        for name in members:
            row = described.rows[name]
            for test, shown in (lines or {"test": None}).items():
                if lines and not any(_scores(run, test) for run in runs[name].values()):
                    continue
                cells = [
                    _interval(estimates[column.title, test], column, name, section)
                    if column.show == "interval"
                    else _cell(column, row, test, section, runs)
                    for column in columns
                ]
                rows.append([row.title, *([shown] if lines else []), *cells])
    second = [section.get("line", "at test")] if lines else []
    head = [section.get("head", ""), *second, *(column.title for column in columns)]
    rows += [[*map(str, extra), *[""] * (len(head) - len(extra))] for extra in section.get("also", ())]
    return table(head, rows)


def _families(
    described: TrainedTable, section: Mapping[str, Any], names: Sequence[str], runs: Runs
) -> list[tuple[str, list[str]]]:
    """Names by family, each with its members in order; one family without a name if they are not grouped."""
    order = section.get("order")
    if order:
        column = Column("", score=order)
        names = sorted(names, key=lambda name: statistics.mean(_values(column, "test", runs[name]).values()))
    if not section.get("families"):
        return [("", list(names))]
    of = {name: described.rows[name].header()["family"] for name in names}
    families = ((family, [name for name in names if of[name] == family]) for family in described.families)
    return [(family, members) for family, members in families if members]


def _cell(column: Column, row: Row, test: str, section: Mapping[str, Any], runs: Runs) -> str:
    empty = section.get("empty", "–")
    if column.header:
        return row.header()[column.header].replace("|", "\\|")
    of_row = runs[row.name]
    values = _values(column, test, of_row)
    if column.less:
        base = _values(column, test, runs.get(str(column.less), {}))
        values = {seed: value - base[seed] for seed, value in values.items() if seed in base}
        if column.less == row.name:
            return ""
    if not values:
        return empty
    text = SHOWN[column.show or section.get("show", "mean")]([*values.values()], column.form)
    if column.of:
        text += f" of {next(iter(_values(Column('', score=column.of, test=column.test), test, of_row).values())):.2f}"
    return text


def _values(column: Column, test: str, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The values by seed, without seeds that have none."""
    values = {}
    for seed, run in sorted(runs.items(), key=lambda item: int(item[0])):
        if column.field:
            entries: Mapping[str, Any] = {**run, "seed": int(seed)}
        else:
            entries = _areas(run) if column.area else _scores(run, column.test or test)
        value = entries.get(column.field or column.area or column.score)
        if value is not None:
            per = run[column.per] if isinstance(column.per, str) else column.per
            values[seed] = value if per == 1 else value / per
    return values


def _scores(run: Run, test: str) -> dict[str, float]:
    """The scores of a test; of a test with several beams, those of the chosen beam."""
    scores: dict[str, float] = run["scores"].get(test) or run["scores"].get(f"{test} {run.get('beam')}") or {}
    return scores


def _areas(run: Run) -> dict[str, float]:
    """Under the curves of deletion: means over all words of a run."""
    means = run.get("deletion")
    if not means:
        return {}
    areas = {name: float(np.average(means[name], weights=means["words"])) for name in ("attention", "random")}
    return areas | {"gain": areas["random"] - areas["attention"]}


def _estimates(column: Column, test: str, names: Sequence[str], runs: Runs) -> dict[str, Estimate]:
    """By row the mean or difference, its p-value corrected for the number of rows."""
    estimates = {}
    for name in names:
        reference = column.less if isinstance(column.less, str) else column.less.get(name, "")
        base = None
        if reference or column.other:
            subtracted = replace(column, score=column.other or column.score)
            base = _values(subtracted, test, runs.get(reference or name, {}))
        if reference != name and (estimate := over_seeds(_values(column, test, runs[name]), base)):
            estimates[name] = estimate
    corrected = holm([estimate.p_value for estimate in estimates.values()])
    return {
        name: estimate._replace(corrected=p_value)
        for (name, estimate), p_value in zip(estimates.items(), corrected, strict=True)
    }


def _interval(
    estimates: Mapping[str, Estimate], column: Column, name: str, section: Mapping[str, Any]
) -> str:
    """A mean with its interval: italic if the interval excludes 0, bold if it does after correction."""
    if name not in estimates:
        return "(reference)" if column.less == name else section.get("empty", "–")
    estimate = estimates[name]
    mean, low, high = (format(value, column.form).replace("-", "−") for value in estimate[:3])
    mark = "**" if estimate.corrected < LEVEL else "*" * (estimate.p_value < LEVEL)
    return f"{mark}{mean} [{low}, {high}]{mark}"


def _verdicts(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    """For each column a row of counts, and below the table the differences that remain after correction."""
    names = [name for name in section.get("rows", described.rows) if runs.get(name)]
    rows, lines = [], []
    for column in (Column(**column) for column in section["columns"]):
        if not (every := _estimates(column, "test", names, runs)):
            continue
        spread = statistics.median(estimate.spread for estimate in every.values())
        judged = {name: every[name] for name in _given(column, every, runs)}
        counts, kept = [], []
        for side, sign in (("above", 1), ("below", -1)):
            on_side = {name: estimate for name, estimate in judged.items() if estimate.mean * sign > 0}
            left = [name for name, estimate in on_side.items() if estimate.corrected < LEVEL]
            significant = sum(estimate.p_value < LEVEL for estimate in on_side.values())
            counts.append(f"{significant} / {len(left)}")
            left.sort(key=lambda name: -abs(judged[name].mean))
            shown = [f"`{name}` {_interval(judged, column, name, section).strip('*')}" for name in left]
            kept.append(f"{side} 0 {', '.join(shown) or 'none'}")
        undecided = sum(estimate.corrected >= LEVEL for estimate in judged.values())
        least = (quantile(LEVEL / len(every), n - 1) * spread / math.sqrt(n) for n in PLANNED)
        numbers = [format(difference, column.form.lstrip("+")) for difference in least]
        rows.append([column.title, str(len(judged)), *counts, str(undecided), *numbers])
        lines.append(f"- **{column.title}**, after correction: {'; '.join(kept)}.")
    for score, distance in section.get("apart", {}).items():
        lines.append(_apart(score, distance, {name: runs[name] for name in names}))
    least_heads = [f"told by {n} seeds" for n in PLANNED]
    head = [section.get("head", ""), "comparisons", "above 0", "below 0", "undecided", *least_heads]
    return "\n".join([table(head, rows), "", *lines])


def _differences(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    """Means of differences over the seeds that both rows have; p-values are corrected for all lines of the table.

    Each of `differences` has two rows, `row` and `less`, and lists of `scores` and `tests`; `less_test` is the name of
    the test of `less`, if it has another.
    """
    heads, estimates, margins = [], [], []
    for pair in section["differences"]:
        row, less = pair["row"], pair["less"]
        for score, test in product(pair["scores"], pair["tests"]):
            column = Column("", score=score)
            values = _values(column, test, runs[row])
            base = _values(column, pair.get("less_test", test), runs[less])
            shared = [seed for seed in values if seed in base]
            estimate = over_seeds(*({seed: of[seed] for seed in shared} for of in (values, base)))
            if estimate:
                titles = f"{described.rows[row].title} − {described.rows[less].title}"
                heads.append([titles, SCORE_TITLES.get(score, score), test, str(len(shared))])
                estimates.append(estimate)
                margins.append(section.get("margin", {}).get(score, 0))
    corrected = holm([estimate.p_value for estimate in estimates])
    rows = []
    for head, estimate, p_value, margin in zip(heads, estimates, corrected, margins, strict=True):
        mean, low, high = (f"{value:+.3f}".replace("-", "−") for value in estimate[:3])
        is_equal = -margin <= estimate.low and estimate.high <= margin
        verdict = "differs" if p_value < LEVEL else f"equal within {margin}" if is_equal else "not shown"
        rows.append([*head, f"{mean} [{low}, {high}]", f"{estimate.p_value:.3f}", f"{p_value:.3f}", verdict])
    titles = ["difference", "score", "test", "pairs", "mean [95 % interval]", "p", "p after Holm", "verdict"]
    return table(titles, rows)


def _given(column: Column, names: Iterable[str], runs: Runs) -> list[str]:
    """The rows that a verdict is about."""
    if column.given is None:
        return [*names]
    condition = {key: value for key, value in column.given.items() if key != "above"}
    estimates = _estimates(Column("", **condition), "test", [*names], runs)
    return [name for name, estimate in estimates.items() if estimate.low > column.given["above"]]


def _apart(score: str, distance: float, runs: Runs) -> str:
    """The rows whose seeds are farther apart than a distance."""
    column = Column("", score=score)
    every = {name: [*_values(column, "test", of_row).values()] for name, of_row in runs.items()}
    apart = {name: sorted(values) for name, values in every.items() if values and np.ptp(values) > distance}
    shown = (f"`{name}` ({SHOWN['list'](values, '.2f')})" for name, values in apart.items())
    of = f"{len(apart)} of {sum(map(bool, every.values()))}"
    return f"- **{score}**: seeds lie more than {distance} apart for {of}: {'; '.join(shown)}."


def _facts(described: TrainedTable, runs: Runs) -> dict[str, Any]:
    """The values of the names in braces of texts."""
    every = [run for name in described.rows for run in runs.get(name, {}).values()]
    scores = [scores for run in every for scores in run["scores"].values()]
    even = [of_test["attention_entropy_max"] for of_test in scores if "attention_entropy_max" in of_test]
    chance = [of_test["pointing_chance"] for of_test in scores if "pointing_chance" in of_test]
    arguments = sorted({" ".join(run.get("arguments", ())) for run in every} - {""})
    folders = [
        f"--{name} {name.upper()}" for name in ("data", "photos") if f"{{{name}}}" in described.folders
    ]
    bounds = sorted({f"{value:.2f}" for value in (min(even), max(even))}) if even else []
    return {
        "command": " ".join(["python -m tools.tables", described.name, *folders, *arguments]),
        "rows": sum(1 for name in described.rows if runs.get(name)),
        "signature": next((run["signature"] for run in every if "signature" in run), ""),
        "chance": f"{statistics.mean(chance):.3f}" if chance else "",
        "even": " to ".join(bounds),
        "most": f"{max(even):.2f}" if even else "",
    }
