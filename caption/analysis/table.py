"""The tables of analyses: a question, how it was measured, and rows; as text, as Markdown and as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from caption.core.errors import optional_package
from caption.metrics.significance import Estimate

if TYPE_CHECKING:
    from pandas import DataFrame


class Value(NamedTuple):
    """A mean with its 95 % interval, as a cell of a table; "–" where it is NaN, and no interval where that is."""

    estimate: Estimate
    digits: int = 3
    is_share: bool = False
    """Written in per cent."""

    def __str__(self) -> str:
        if math.isnan(self.estimate.mean):
            return "–"
        factor, digits, unit = (100, 0, " %") if self.is_share else (1, self.digits, "")
        # Adding 0 turns −0.0 into 0.0.
        numbers = [f"{round(factor * number, digits) + 0.0:.{digits}f}" for number in self.estimate]
        interval = "" if math.isnan(self.estimate.low) else f" [{numbers[1]}, {numbers[2]}]"
        return f"{numbers[0]}{unit}{interval}"


Cell = str | int | Value


def share(estimate: Estimate) -> Value:
    """A cell in per cent."""
    return Value(estimate, is_share=True)


def numbers(values: Iterable[float], form: str = ".2f") -> list[Cell]:
    """Cells with two digits; "–" where a number is not finite."""
    # Adding 0 turns −0.0 into 0.0.
    return [f"{round(float(value), 2) + 0.0:{form}}" if math.isfinite(value) else "–" for value in values]


@dataclass
class AnalysisTable:
    """Rows under a head, with the question that they answer. In a notebook it is shown as HTML."""

    head: Sequence[str] = ()
    rows: list[list[Cell]] = field(default_factory=list)
    title: str = ""
    """The question."""
    meaning: str = ""
    """How it was measured."""
    missing: str = ""
    """If it could not be measured: the reason and the remedy."""
    notes: list[str] = field(default_factory=list)

    def add(self, rows: Iterable[Sequence[Cell]], *first: Cell) -> None:
        """Add rows, each after the cells `first`, which all of them share."""
        self.rows += ([*first, *row] for row in rows)

    def __str__(self) -> str:
        """Aligned columns, the first to the left."""
        lines = [[*self.head], *([str(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines
        )

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines).replace("| --- ", "|---")

    def html(self, cell: Callable[[Cell], str] = lambda cell: f"<td>{html.escape(str(cell))}</td>") -> str:
        """Args: cell: gives the element of each cell."""
        heads = "".join(f"<th>{html.escape(name)}</th>" for name in self.head)
        lines = "".join(f"<tr>{''.join(map(cell, row))}</tr>\n" for row in self.rows)
        return f"<table>\n<tr>{heads}</tr>\n{lines}</table>"

    def _repr_html_(self) -> str:
        return self.html()

    def to_frame(self) -> DataFrame:
        """The rows as a pandas DataFrame: a mean with an interval takes three columns, "x", "x low" and "x high".

        Raises:
            UserError: pandas is not installed.
        """
        with optional_package("to_frame()", "pandas"):
            import pandas
        rows = []
        for row in self.rows:
            cells: dict[str, Any] = {}
            for name, cell in zip(self.head, row, strict=True):
                if isinstance(cell, Value):
                    cells |= {name: cell.estimate.mean, f"{name} low": cell.estimate.low}
                    cells[f"{name} high"] = cell.estimate.high
                else:
                    cells[name] = None if cell == "–" else cell
            rows.append(cells)
        return pandas.DataFrame(rows, columns=None if rows else list(self.head))

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a list of rows, each with its cells by the heads of their columns."""
        if self.missing:
            return {"title": self.title, "missing": self.missing}
        rows = [dict(zip(self.head, map(_plain, row), strict=True)) for row in self.rows]
        return {"title": self.title, "notes": self.notes, "rows": rows}


class Tabled:
    """A result that is printed, and shown in a notebook, as its table."""

    def table(self) -> AnalysisTable:
        """The result as a table."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table().html()


def _plain(cell: Cell) -> Any:
    if not isinstance(cell, Value):
        return cell
    return None if math.isnan(cell.estimate.mean) else cell.estimate._asdict()
