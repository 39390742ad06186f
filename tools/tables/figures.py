"""The figures of a table: means over seeds with their intervals, from its published runs.

A figure is a mapping in the table's YAML file, drawn beside the document:

    file       its name
    x, label   the texts of the horizontal axis, and its title
    panels     side by side, each with a title, a score of the test `test`, and series by name. A series has a row for
               each of x, or a pair of rows, whose difference is shown, or null for a gap
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tools.tables.columns import Column, values_of
from tools.tables.runs import Runs
from tools.tables.significance import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

APART = 0.06
"""Between the points of neighbouring series, so that their intervals do not hide each other."""


def figure(described: Mapping[str, Any], runs: Runs) -> Figure:
    """Draw a figure. A point without two seeds is a gap."""
    from matplotlib.figure import Figure

    panels: Sequence[Mapping[str, Any]] = described["panels"]
    drawn = Figure(figsize=(3.2 * len(panels), 3), layout="constrained")
    for axes, panel in zip(drawn.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        column = Column(panel["title"], score=panel["score"])
        for number, (name, points) in enumerate(panel["series"].items()):
            places = [place + number * APART for place in range(len(points))]
            means, halves = [math.nan] * len(points), [math.nan] * len(points)
            for place, point in enumerate(points):
                row, *less = [point] if isinstance(point, str) else point or [""]
                values, *base = (values_of(column, "test", runs.get(each, {})) for each in (row, *less))
                if estimate := over_seeds(values, *base):
                    means[place], halves[place] = estimate.mean, estimate.high - estimate.mean
            axes.errorbar(places, means, halves, label=name, marker="o", capsize=3)
        if any(isinstance(point, list) for points in panel["series"].values() for point in points):
            axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(range(len(described["x"])), described["x"])
        axes.set(title=panel["title"], xlabel=described.get("label", ""))
        axes.margins(x=0.2)
    # One for all panels, above them, where it hides no point.
    names = [axes.get_legend_handles_labels() for axes in drawn.axes]
    drawn.legend(
        *max(names, key=lambda pair: len(pair[1])), loc="outside upper center", ncols=4, frameon=False
    )
    return drawn
