"""Sections that compare rows: verdicts, leads and differences, with p-values corrected for the number of tests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tools.documents import csv_table, table
from tools.tables.columns import SHOWN, Column, by_family, estimates_of, subtracted, values_of, with_interval
from tools.tables.runs import Runs
from tools.tables.significance import LEVEL, Estimate, holm, over_seeds, quantile, with_corrections
from tools.tables.table import TrainedTable

PLANNED = (3, 5, 10)
"""Numbers of seeds for which verdicts have the smallest difference that they can tell."""
P_VALUES: tuple[Callable[[Estimate], float], ...] = (
    lambda estimate: estimate.p_value,
    lambda estimate: estimate.discovery,
    lambda estimate: estimate.corrected,
)
"""Of a comparison alone, after Benjamini and Hochberg's correction, and after Holm's."""


def verdicts(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    """For each column, how many differences are above and below 0, and the smallest that so many seeds could tell."""
    rows = []
    for column in (Column(**column) for column in section["columns"]):
        if not (every := estimates_of(column, "test", runs)):
            continue
        spread = statistics.median(estimate.spread for estimate in every.values())
        judged = _given(column, every, runs)
        counts = [
            " / ".join(str(len(_on_side(judged, side, p_value))) for p_value in P_VALUES) for side in (1, -1)
        ]
        undecided = sum(estimate.corrected >= LEVEL for estimate in judged.values())
        least = (quantile(LEVEL / len(every), n - 1) * spread / math.sqrt(n) for n in PLANNED)
        numbers = [format(difference, column.form.lstrip("+")) for difference in least]
        rows.append([column.title, str(len(judged)), *counts, str(undecided), *numbers])
    least_heads = [f"told by {n} seeds" for n in PLANNED]
    head = [section.get("head", ""), "comparisons", "above 0", "below 0", "undecided", *least_heads]
    lines = [_apart(score, distance, runs) for score, distance in section.get("apart", {}).items()]
    return "\n".join([table(head, rows), "", *lines])


def _on_side(estimates: Mapping[str, Estimate], side: int, p_value: Callable[[Estimate], float]) -> list[str]:
    """The rows whose differences have this sign and are significant, the largest first."""
    names = [name for name, one in estimates.items() if one.mean * side > 0 and p_value(one) < LEVEL]
    return sorted(names, key=lambda name: -abs(estimates[name].mean))


def _given(column: Column, estimates: Mapping[str, Estimate], runs: Runs) -> dict[str, Estimate]:
    """The rows that a verdict is about."""
    if column.given is None:
        return {**estimates}
    condition = {key: value for key, value in column.given.items() if key != "above"}
    given = estimates_of(Column("", **condition), "test", runs)
    return {name: estimates[name] for name in given if given[name].low > column.given["above"]}


def _apart(score: str, distance: float, runs: Runs) -> str:
    """The rows whose seeds are farther apart than a distance."""
    column = Column("", score=score)
    every = {name: [*values_of(column, "test", of_row).values()] for name, of_row in runs.items()}
    apart = {name: sorted(values) for name, values in every.items() if values and np.ptp(values) > distance}
    shown = (f"`{name}` ({SHOWN['list'](values, '.2f')})" for name, values in apart.items())
    of = f"{len(apart)} of {sum(map(bool, every.values()))}"
    return f"- **{score}**: seeds lie more than {distance} apart for {of}: {'; '.join(shown)}."


def leads(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    """How many rows are worse and better: a line for each column, with those that are better, and a table by family."""
    *_, discovery, family_wise = P_VALUES
    families = by_family(described, runs)
    cells: dict[str, list[str]] = {family: [] for family in families}
    lines, columns = [], [Column(**column) for column in section["columns"]]
    compared: set[str] = set()
    for column in columns:
        estimates = estimates_of(column, "test", runs)
        compared.update(estimates)
        sides = (-1, 1) if column.better == "above" else (1, -1)
        worse, better = (_on_side(estimates, side, family_wise) for side in sides)
        discovered = [len(_on_side(estimates, side, discovery)) for side in sides]
        named = "".join(f"; `{name}` {_with_later(column, name, section['later'], runs)}" for name in better)
        lines.append(
            f"- **{column.title}**: {len(worse)} ({discovered[0]}) of {len(estimates)} are worse, "
            f"{len(better)} ({discovered[1]}) better{named}."
        )
        for family, members in families.items():
            counts = {sign: len({*names} & {*members}) for sign, names in (("−", worse), ("+", better))}
            cells[family].append(" ".join(f"{sign}{count}" for sign, count in counts.items() if count))
    head = [section["head"], "compared", *(column.title for column in columns)]
    rows = (
        [family, str(len(compared & {*families[family]})), *of_family] for family, of_family in cells.items()
    )
    return "\n".join([*lines, "", table(head, rows)])


def _with_later(column: Column, name: str, first: int, runs: Runs) -> str:
    """A difference, with that of the seeds from `first` on alone, which did not draw the attention to it."""
    shown = with_interval(estimates_of(column, "test", runs)[name], column)
    later = {seed: run for seed, run in runs[name].items() if int(seed) >= first}
    alone = estimates_of(column, "test", {**runs, name: later}).get(name)
    if alone is None:
        return shown
    return f"{shown}, with seeds {' and '.join(later)} alone {with_interval(alone, column)}"


def differences(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    """A row for each pair of rows, over the seeds that both have. Cells have the mean difference, its interval, and the
    p-value corrected for all differences of sections of this name: bold below LEVEL, ≈ if the interval lies within the
    margin of the column.

    Each of `differences` has a `row` and `less`, and the names of their tests, `test` and `less_test`, if not "test".
    Lists of rows stand for their means, as in the effects of a factorial design; then a `title` is needed.
    """
    parts = [
        part for part in described.sections if part["section"] == section["section"] and "differences" in part
    ]
    family = {
        (number, *place): estimate
        for number, part in enumerate(parts)
        for place, estimate in _differences(part, runs).items()
    }
    corrected, number = with_corrections(family), parts.index(section)
    columns = [Column(**column) for column in section["columns"]]
    rows = []
    for line, pair in enumerate(section["differences"]):
        row, less = _sides(pair)
        title = pair.get("title") or f"{described.rows[row[0]].title} − {described.rows[less[0]].title}"
        cells = (
            _with_p_value(corrected.get((number, line, place)), column)
            for place, column in enumerate(columns)
        )
        rows.append([title, str(len(_shared(pair, runs))), *cells])
    return table(["difference", "pairs", *(column.title for column in columns)], rows)


def _differences(section: Mapping[str, Any], runs: Runs) -> dict[tuple[int, int], Estimate]:
    """Those that have enough seeds, by the places of the pair and of the column."""
    estimates = {}
    for line, pair in enumerate(section["differences"]):
        test, shared = pair.get("test", "test"), _shared(pair, runs)
        tests = (test, pair.get("less_test", test))
        for place, column in enumerate(Column(**column) for column in section["columns"]):
            values, base = (
                _mean_of_rows(column, of_test, names, runs)
                for names, of_test in zip(_sides(pair), tests, strict=True)
            )
            if shared <= values.keys() & base.keys():
                pairs = ({seed: of[seed] for seed in shared} for of in (values, base))
                if estimate := over_seeds(*pairs):
                    estimates[line, place] = estimate
    return estimates


def _sides(pair: Mapping[str, Any]) -> list[list[str]]:
    """The names of the rows, and of those that they are compared with."""
    return [[names] if isinstance(names, str) else names for names in (pair["row"], pair["less"])]


def _shared(pair: Mapping[str, Any], runs: Runs) -> set[str]:
    """The seeds that all rows of a pair have."""
    return set.intersection(*({*runs.get(name, ())} for names in _sides(pair) for name in names))


def _mean_of_rows(column: Column, test: str, names: Sequence[str], runs: Runs) -> dict[str, float]:
    """By seed, the mean over rows, of the seeds that all of them have."""
    every = [values_of(column, test, runs.get(name, {})) for name in names]
    shared = (seed for seed in every[0] if all(seed in values for values in every))
    return {seed: statistics.mean(values[seed] for values in every) for seed in shared}


def _with_p_value(estimate: Estimate | None, column: Column) -> str:
    if estimate is None:
        return "–"
    is_equal = -column.margin <= estimate.low and estimate.high <= column.margin
    mark = "**" * (estimate.corrected < LEVEL)
    p_value = f"{estimate.corrected:.3f}" if estimate.corrected >= 0.0005 else "<0.001"
    shown = f"{with_interval(estimate, column)} {'≈ ' * is_equal}({p_value})"
    return f"{mark}{shown}{mark}"


def over_rows(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    """For each column a line: a difference of two tests. The mean over the seeds of a row is one observation."""
    names = [name for name in section["rows"] if name in runs]
    estimates, cells = {}, {}
    for column in (Column(**column) for column in section["columns"]):
        by_row = {}
        for name in names:
            values, base = (values_of(each, "test", runs[name]) for each in (column, subtracted(column)))
            if of_row := [value - base[seed] for seed, value in values.items() if seed in base]:
                by_row[name] = of_row
        means = {name: statistics.mean(of_row) for name, of_row in by_row.items()}
        if estimate := over_seeds(means):
            estimates[column.title] = estimate
            shown = (format(means[name], column.form) if name in means else "–" for name in names)
            cells[column.title] = [
                with_interval(estimate, column),
                *(cell.replace("-", "−") for cell in shown),
            ]
    rows = [
        [title, cells[title][0], f"{one.p_value:.2g}", f"{one.corrected:.2g}", *cells[title][1:]]
        for title, one in with_corrections(estimates).items()
    ]
    titles = (described.rows[name].title for name in names)
    return table([section.get("head", ""), "difference", "p", "p after Holm", *titles], rows)


def by_test(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    """A line for each test, such as a map method. Cells have the mean of each row over its seeds or, `together`, the
    mean of these means.

    It is bold if the difference that runs have by test and score is better in every run, and italic if it is worse in
    every run, after Holm's correction for all cells of the run.
    """
    columns = [Column(**column) for column in section["columns"]]
    names = [name for name in section.get("rows", described.rows) if runs.get(name)]
    families = {name: [_family(run, columns) for run in runs[name].values()] for name in names}
    groups = [names] if section.get("together") else [[name] for name in names]
    every = dict.fromkeys(test for name in names for run in runs[name].values() for test in run["scores"])
    lines = []
    for test in every:
        if test not in section.get("without", ()):
            cells = [
                [_of_rows(column, test, runs, group, families) for group in groups] for column in columns
            ]
            lines.append([test, *map(" ".join, cells)])
    return table([section["head"], *(column.title for column in columns)], lines)


def _of_rows(
    column: Column,
    test: str,
    runs: Runs,
    names: Sequence[str],
    families: Mapping[str, Sequence[Mapping[tuple[str, str], Estimate]]],
) -> str:
    values = [values_of(column, test, runs[name]).values() for name in names]
    means = [statistics.mean(of_row) for of_row in values if of_row]
    key = test, column.score
    found = [family[key] for name in names for family in families[name] if key in family]
    better = 1 if column.better == "above" else -1
    sides = {better * math.copysign(one.corrected < LEVEL, one.mean) for one in found}
    mark = "**" if sides == {1} else "*" if sides == {-1} else ""
    return f"{mark}{format(statistics.mean(means), column.form).replace('-', '−') if means else '–'}{mark}"


def differences_of_runs(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    """A file with a line for each difference that a run has by test and score; see `by_test`."""
    columns = [Column(**column) for column in section["columns"]]
    rows = []
    for name in section.get("rows", described.rows):
        for seed, run in runs.get(name, {}).items():
            for (test, score), one in _family(run, columns).items():
                numbers = (f"{value:.3f}" for value in one[:3])
                rows.append([name, seed, test, score, *numbers, f"{one.p_value:.2g}", f"{one.corrected:.2g}"])
    return csv_table(
        ["model", "seed", section["head"], "scale", "difference", "low", "high", "p", "p Holm"], rows
    )


def _family(run: Mapping[str, Any], columns: Sequence[Column]) -> dict[tuple[str, str], Estimate]:
    """The differences of a run by test and score, corrected together."""
    shown = {column.score for column in columns}
    found = {
        (test, score): Estimate(**difference)
        for test, by_score in run.get("differences", {}).items()
        for score, difference in by_score.items()
        if score in shown
    }
    corrected = holm([estimate.p_value for estimate in found.values()])
    return {key: one._replace(corrected=p) for (key, one), p in zip(found.items(), corrected, strict=True)}
