"""What `caption score` prints: a table for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from caption.metrics.score import Scores
from caption.metrics.significance import Comparison, Interval


@dataclass
class Result:
    """One candidate file, scored."""

    name: str
    scores: Scores
    intervals: dict[str, Interval | None] | None = None
    """Of each score; None where not asked for."""
    conventions: dict[str, Scores] | None = None
    """BLEU under each convention; None where not asked for."""
    comparison: dict[str, Comparison | None] | None = None
    """With the first candidate file; None for that file itself."""


def as_json(results: list[Result], several: bool) -> str:
    """One object for one candidate file; for several, `{"candidates": [...]}` with an object each."""
    entries = [_entry(result) for result in results]
    if several:
        plain: Any = {
            "candidates": [
                {"file": result.name, **entry} for result, entry in zip(results, entries, strict=True)
            ]
        }
    else:
        plain = entries[0]
    return json.dumps(plain, indent=1)


def _entry(result: Result) -> dict[str, Any]:
    entry = result.scores.to_dict()
    if result.intervals is not None:
        entry["intervals"] = {
            name: interval and [interval.low, interval.high] for name, interval in result.intervals.items()
        }
    if result.conventions is not None:
        entry["conventions"] = {name: scores.to_dict() for name, scores in result.conventions.items()}
    if result.comparison is not None:
        entry["comparison"] = {
            name: comparison and comparison._asdict() for name, comparison in result.comparison.items()
        }
    return entry


Table = tuple[str, list[str], list[list[str]]]
"""Title, column heads, rows."""


def as_text(results: list[Result]) -> str:
    """Tables, drawn with rich on a terminal and with spaces elsewhere; then the signature and the reasons."""
    for result, name in zip(results, _short([result.name for result in results]), strict=True):
        result.name = name
    tables = [_scores_table(results)]
    tables += [_conventions_table(result) for result in results if result.conventions is not None]
    tables += [_comparison_table(result, results[0]) for result in results if result.comparison is not None]
    draw = _drawn if sys.stdout.isatty() else _spaced
    notes = [result.scores.signature for result in results]
    reasons = {f"{name}: {reason}" for result in results for name, reason in result.scores.reasons.items()}
    return "\n".join([*(draw(*table) for table in tables), *dict.fromkeys(notes), *sorted(reasons)])


def _short(paths: list[str]) -> list[str]:
    """The paths without what they have in common: folders, as far as the names stay different, and suffix."""
    names = [PurePath(path).name for path in paths]
    if len(set(names)) < len(names):
        return paths
    stems = [PurePath(name).stem for name in names]
    return stems if len(set(stems)) == len(stems) else names


def _scores_table(results: list[Result]) -> Table:
    heads = ["", *(result.name for result in results)] if len(results) > 1 else ["", "score"]
    rows = [[name, *(_cell(result, name) for result in results)] for name in results[0].scores]
    return "", heads, rows


def _cell(result: Result, name: str) -> str:
    interval = (result.intervals or {}).get(name)
    bounds = f" [{interval.low:.4f}, {interval.high:.4f}]" if interval else ""
    return _number(result.scores[name]) + bounds


def _number(value: float | None) -> str:
    return "not computed" if value is None else f"{value:.4f}"


def _conventions_table(result: Result) -> Table:
    assert result.conventions is not None
    names = list(next(iter(result.conventions.values())))
    rows = [
        [convention, *(_number(scores[name]) for name in names)]
        for convention, scores in result.conventions.items()
    ]
    return f"conventions, {result.name}", ["", *names], rows


def _comparison_table(result: Result, first: Result) -> Table:
    assert result.comparison is not None
    rows = [
        [name, f"{each.difference:+.4f}", f"[{each.low:+.4f}, {each.high:+.4f}]", f"{each.p_value:.3f}"]
        for name, each in result.comparison.items()
        if each is not None
    ]
    return f"{result.name} less {first.name}", ["", "difference", "95 % interval", "p"], rows


def _spaced(title: str, heads: list[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *rows)
    ]
    return "\n".join([*([title] if title else []), *lines, ""])


def _drawn(title: str, heads: list[str], rows: list[list[str]]) -> str:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    table = RichTable(title=escape(title) or None, box=box.SIMPLE, title_justify="left")
    for place, head in enumerate(heads):
        table.add_column(escape(head), justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console()
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip("\n")
