"""The sections of a document, from the published runs of a table.

A section is a mapping in the table's YAML file:

    section    its name in the document; several of the same name follow each other
    document   if not that of the table
    text       above the table, with {command}, {rows}, {signature}, {chance}, {even} and {most}, the
               bounds of the entropy of even maps
    head       of the first column
    rows       names, if not all
    lines      by test: what stands in the second column. A row has a line for each of these tests that it has
    families   true: rows stand together by family, below a line with its name; flat: without that line
    order      a score of the first test; within a family, rows with less of it come first
    columns    see `Column`
    show       how the values of seeds are shown, if a column does not say: a name of SHOWN
    empty      what stands where there is no value
    also       further lines, at the end
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from caption.metrics.significance import difference, estimate
from tools.documents import table
from tools.tables.runs import Run, Runs
from tools.tables.table import Row, Table

LEARNED = 0.5
QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
"""Of Student's t: 97.5 % by degrees of freedom."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    score: str = ""
    """A score of `caption test`, or of a measure."""
    test: str = ""
    """Of which test; "" = that of the line."""
    field: str = ""
    """In place of a score, another entry of the run, or `seed`."""
    header: str = ""
    """In place of a score, a part of the header of the row's configuration."""
    interval: str = ""
    """In place of a score, the areas of deletion of all seeds: attention, random, or gain, with its interval."""
    form: str = ".3f"
    per: Any = 1
    """What a value is divided by: a number, or a field."""
    show: str = ""
    less: str = ""
    """The row from whose value of the same seed the difference is shown."""
    welch: str = ""
    """The row from whose seeds the difference is shown with its interval; with `other`, from another score."""
    other: str = ""
    of: str = ""
    """A score that stands behind it: "of 4.39"."""


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
    "last": lambda values, form: format(values[-1], form),
    "count": lambda values, form: str(len(values)),
    "learned": lambda values, form: f"{sum(value >= LEARNED for value in values)} of {len(values)}",
}
"""How the values of several seeds are shown."""


class Gap(NamedTuple):
    """A difference of means over seeds, with its 95 % interval."""

    difference: float
    low: float
    high: float

    def text(self, form: str, bold: bool = True) -> str:
        """The difference with its interval in brackets; bold if the interval leaves out 0."""
        text = f"{self.difference:{form}} [{self.low:{form}}, {self.high:{form}}]".replace("-", "−")
        return f"**{text}**" if bold and (self.low > 0 or self.high < 0) else text


def gap(values: Sequence[float], others: Sequence[float]) -> Gap | None:
    """Mean of `values` less mean of `others`; None unless both have two seeds or more.

    Welch's interval with the fewest degrees of freedom that his formula allows, one less than the smaller number of
    seeds, which makes it wide rather than narrow.
    """
    fewest = min(len(values), len(others))
    if fewest < 2:
        return None
    found = statistics.mean(values) - statistics.mean(others)
    error = math.sqrt(sum(statistics.variance(sample) / len(sample) for sample in (values, others)))
    half = QUANTILES[min(fewest - 1, max(QUANTILES))] * error
    return Gap(found, found - half, found + half)


def sections(described: Table, runs: Runs) -> dict[str, str]:
    """The Markdown of each section, by its name."""
    texts: dict[str, list[str]] = {}
    for section in described.sections:
        text = section.get("text", "").format(**_facts(described, runs))
        texts.setdefault(section["section"], []).append(
            f"{text}\n\n{_table(described, section, runs)}".strip()
        )
    return {name: "\n\n".join(parts) for name, parts in texts.items()}


def _table(described: Table, section: Mapping[str, Any], runs: Runs) -> str:
    columns = [Column(**each) for each in section["columns"]]
    lines = section.get("lines")
    names = [name for name in section.get("rows", described.rows) if runs.get(name)]
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
                cells = [_cell(column, row, test, section, runs) for column in columns]
                rows.append([row.title, *([shown] if lines else []), *cells])
    head = [section.get("head", ""), *(["at test"] if lines else []), *(column.title for column in columns)]
    rows += [[*map(str, extra), *[""] * (len(head) - len(extra))] for extra in section.get("also", ())]
    return table(head, rows)


def _families(
    described: Table, section: Mapping[str, Any], names: Sequence[str], runs: Runs
) -> list[tuple[str, list[str]]]:
    """Names by family, each with its members in order; one family without a name if they are not grouped."""
    order = section.get("order")
    if order:
        column = Column("", score=order)
        names = sorted(names, key=lambda name: statistics.mean(_values(column, "test", runs[name]).values()))
    if not section.get("families"):
        return [("", list(names))]
    of = {name: described.rows[name].header()["family"] for name in names}
    found = ((family, [name for name in names if of[name] == family]) for family in described.families)
    return [(family, members) for family, members in found if members]


def _cell(column: Column, row: Row, test: str, section: Mapping[str, Any], runs: Runs) -> str:
    empty, of_row = section.get("empty", "–"), runs[row.name]
    if column.header:
        return row.header()[column.header].replace("|", "\\|")
    if column.interval:
        return _deletion(column, of_row.values()) or empty
    values = _values(column, test, of_row)
    if column.welch or column.other:
        if column.welch == row.name:
            return "(reference)"
        other = Column("", score=column.other or column.score)
        found = gap(
            [*values.values()], [*_values(other, test, runs.get(column.welch or row.name, {})).values()]
        )
        return empty if found is None else found.text(column.form)
    if column.less:
        base = _values(column, test, runs.get(column.less, {}))
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
    """By seed; without seeds that have no such value."""
    values = {}
    for seed, run in sorted(runs.items(), key=lambda each: int(each[0])):
        entries = {**run, "seed": int(seed)} if column.field else _scores(run, column.test or test)
        value = entries.get(column.field or column.score)
        if value is not None:
            per = run[column.per] if isinstance(column.per, str) else column.per
            values[seed] = value if per == 1 else value / per
    return values


def _scores(run: Run, test: str) -> dict[str, float]:
    """Of a test; of one that was made with several beams, those of the beam that was chosen."""
    scores: dict[str, float] = run["scores"].get(test) or run["scores"].get(f"{test} {run.get('beam')}") or {}
    return scores


def _deletion(column: Column, runs: Any) -> str:
    """An area over all words of several seeds, or the difference of both with its 95 % interval.

    The bootstrap draws images: the words of an image, of all seeds, stay together.
    """
    areas = [run["deletion"] for run in runs if run.get("deletion")]
    if not areas:
        return ""
    images, attention, random = (
        np.concatenate([np.repeat(area[name], area["words"]) for area in areas])
        for name in ("images", "attention", "random")
    )
    if column.interval == "gain":
        gain = difference(attention, random, images)
        return Gap(gain.difference, gain.low, gain.high).text(column.form, bold=False)
    area = {"attention": attention, "random": random}[column.interval]
    return format(estimate(area, images).mean, column.form)


def _facts(described: Table, runs: Runs) -> dict[str, Any]:
    """What texts may name."""
    every = [run for name in described.rows for run in runs.get(name, {}).values()]
    scores = [scores for run in every for scores in run["scores"].values()]
    even = [each["attention_entropy_max"] for each in scores if "attention_entropy_max" in each]
    chance = [each["pointing_chance"] for each in scores if "pointing_chance" in each]
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
