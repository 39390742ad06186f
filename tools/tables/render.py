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
    families   true: a table for each family, below a heading with its name; flat: in one table
    order      a score of the first test; within a family, rows are sorted by it, the lowest first
    columns    see `Column`
    as         what is shown, a name of KINDS; without it a table
    later      of leads: the first seed of those that were added after the first results
    apart      {score: distance}: after verdicts, the rows whose seeds are farther apart
    together   of by_test: one number for all rows
    without    of by_test: tests that are not shown
    differences  in place of rows: pairs of rows; see `comparisons.differences`
    show       how the values of seeds are shown, if a column has no `show`: a name of SHOWN
    empty      the text of cells without a value
    also       further lines, at the end
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from tools.documents import csv_table, table
from tools.tables.columns import SHOWN, Column, by_family, estimates_of, scores_of, values_of, with_interval
from tools.tables.comparisons import by_test, differences, differences_of_runs, leads, over_rows, verdicts
from tools.tables.runs import Runs
from tools.tables.significance import LEVEL, Estimate
from tools.tables.table import Row, TrainedTable


def sections(described: TrainedTable, runs: Runs) -> dict[str, str]:
    """The Markdown of each section, by its name."""
    texts: dict[str, list[str]] = {}
    runs = {name: runs[name] for name in described.rows if runs.get(name)}
    for section in described.sections:
        text = section.get("text", "").format(**_facts(described, runs))
        shown = differences if "differences" in section else KINDS[section.get("as", "table")]
        texts.setdefault(section["section"], []).append(
            f"{text}\n\n{shown(described, section, runs)}".strip()
        )
    return {name: "\n\n".join(parts) for name, parts in texts.items()}


def _table(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    columns = [Column(**column) for column in section["columns"]]
    lines = section.get("lines")
    has_header = any(column.header for column in columns)  # rows without runs have one, too
    names = [name for name in section.get("rows", described.rows) if runs.get(name) or has_header]
    estimates = {
        (column.title, test): estimates_of(column, test, runs)
        for column in columns
        for test in lines or ["test"]
        if column.show == "interval"
    }
    second = [section.get("line", "at test")] if lines else []
    head = [section.get("head", ""), *second, *(column.title for column in columns)]
    apart = section.get("families") is True
    parts: list[tuple[str, list[list[str]]]] = [] if apart else [("", [])]
    for family, members in _families(described, section, names, runs):
        if apart:
            meaning = described.families[family]
            parts.append((f"## {family.capitalize()}\n\n{meaning[0].upper()}{meaning[1:]}.\n\n", []))
        for name in members:
            row = described.rows[name]
            for test, shown in (lines or {"test": None}).items():
                if lines and not any(scores_of(run, test) for run in runs[name].values()):
                    continue
                cells = [
                    _interval(estimates[column.title, test], column, name, section)
                    if column.show == "interval"
                    else _cell(column, row, test, section, runs)
                    for column in columns
                ]
                parts[-1][1].append([row.title, *([shown] if lines else []), *cells])
    parts[-1][1].extend(
        [[*map(str, extra), *[""] * (len(head) - len(extra))] for extra in section.get("also", ())]
    )
    return "\n\n".join(title + table(head, rows) for title, rows in parts)


def _families(
    described: TrainedTable, section: Mapping[str, Any], names: Sequence[str], runs: Runs
) -> list[tuple[str, list[str]]]:
    """Names by family, each with its members in order; one family without a name if they are not grouped."""
    order = section.get("order")
    if order:
        column = Column("", score=order)
        names = sorted(
            names, key=lambda name: statistics.mean(values_of(column, "test", runs[name]).values())
        )
    if not section.get("families"):
        return [("", list(names))]
    return [*by_family(described, names).items()]


def _cell(column: Column, row: Row, test: str, section: Mapping[str, Any], runs: Runs) -> str:
    empty, of_row = section.get("empty", "–"), runs.get(row.name, {})
    if column.header:
        return row.header()[column.header].replace("|", "\\|")
    values = values_of(column, test, of_row)
    if column.less:
        base = values_of(column, test, runs.get(str(column.less), {}))
        values = {seed: value - base[seed] for seed, value in values.items() if seed in base}
        if column.less == row.name:
            return ""
    if not values:
        return empty
    text = SHOWN[column.show or section.get("show", "mean")]([*values.values()], column.form)
    if column.of:
        text += f" of {next(iter(values_of(Column('', score=column.of, test=column.test), test, of_row).values())):.2f}"
    return text


def _interval(
    estimates: Mapping[str, Estimate], column: Column, name: str, section: Mapping[str, Any]
) -> str:
    """A mean with its interval: italic if the interval excludes 0, bold if it does after correction."""
    if name not in estimates:
        return "(reference)" if column.less == name else section.get("empty", "–")
    estimate = estimates[name]
    mark = "**" if estimate.corrected < LEVEL else "*" * (estimate.p_value < LEVEL)
    return f"{mark}{with_interval(estimate, column)}{mark}"


def _csv(described: TrainedTable, section: Mapping[str, Any], runs: Runs) -> str:
    """All rows as a file: a mean with its standard deviation in two columns, an interval with p-values in six."""
    columns = [Column(**column) for column in section["columns"]]
    estimates = {
        column.title: estimates_of(column, "test", runs) for column in columns if column.show == "interval"
    }
    head = [column.title + part for column in columns for part in PARTS.get(column.show, [""])]
    rows = []
    for family, members in by_family(described, runs).items():
        for name in members:
            cells = (
                _csv_cells(column, described.rows[name], estimates.get(column.title, {}), runs)
                for column in columns
            )
            rows.append([name, family, *chain.from_iterable(cells)])
    return csv_table([section["head"], "family", *head], rows)


def _csv_cells(column: Column, row: Row, estimates: Mapping[str, Estimate], runs: Runs) -> list[str]:
    if column.show == "interval":
        if (estimate := estimates.get(row.name)) is None:
            return [""] * len(PARTS["interval"])
        p_values = estimate.p_value, estimate.corrected, estimate.discovery
        return [
            *(format(value, column.form) for value in estimate[:3]),
            *(f"{value:.2g}" for value in p_values),
        ]
    if column.show:
        return [_cell(column, row, "test", {"empty": ""}, runs)]
    values = [*values_of(column, "test", runs[row.name]).values()]
    mean = format(statistics.mean(values), column.form) if values else ""
    return [mean, format(statistics.stdev(values), column.form) if len(values) > 1 else ""]


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


KINDS = {
    "table": _table,
    "verdicts": verdicts,
    "leads": leads,
    "rows": over_rows,
    "by_test": by_test,
    "differences_of_runs": differences_of_runs,
    "csv": _csv,
}
"""What a section shows, by its `as`. CSV files, of which `differences_of_runs` is one, are documents of their own."""
PARTS = {"interval": ["", " low", " high", " p", " p Holm", " p Benjamini-Hochberg"], "": ["", " sd"]}
"""Of the heads of a CSV file, by the `show` of a column."""
