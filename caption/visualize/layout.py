"""Where the panels of a figure go, in inches from its upper left corner."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

# Inches.
PANEL = 1.9  # side of the square that has a panel's area
SHORTEST = 0.75  # side of a panel; a word stands over it, and a peak under it
PAGE = 10.0  # width of the whole, unless a single panel or the number of columns asks for more
GAP = 0.08  # between panels
TITLE = 0.27  # above a panel: its word
FOOT = 0.19  # a line below a panel: its peak and β, or what the lens sees
MARGIN = 0.12
HEADING_LINE = 0.24  # of the sentence at the top
BAR = 1.2  # width of the bar that states the scale
NARROWEST = 5.0  # width of the whole, if there is text above or below
# Letters on an inch, of the sentence and of the legend.
HEADING_LETTERS, LEGEND_LETTERS = 9.5, 18.0
BESIDE_BAR = MARGIN + 0.1 + BAR + 0.3  # where the legend's text begins


class Layout(NamedTuple):
    """The places of panels in a grid, with a heading above it and a legend below it."""

    panels: int
    columns: int
    panel: tuple[float, float]
    """Width and height of the photo in a panel."""
    foot: float
    """Height of the text under a panel."""
    heading: str = ""
    legend: tuple[str, ...] = ()
    """Notes for one line; the last ones are left out where it is too short."""

    @property
    def width(self) -> float:
        narrowest = NARROWEST if self.heading or self.legend else 0.0
        return max(self.columns * (self.panel[0] + GAP) - GAP + 2 * MARGIN, narrowest)

    @property
    def heading_lines(self) -> list[str]:
        return textwrap.wrap(self.heading, int(HEADING_LETTERS * self.width), max_lines=4, placeholder=" …")

    @property
    def legend_line(self) -> str:
        room = int(LEGEND_LETTERS * (self.width - BESIDE_BAR - MARGIN))
        lines = ("; ".join(self.legend[:count]) for count in range(len(self.legend), 1, -1))
        return next((line for line in lines if len(line) <= room), self.legend[0])

    @property
    def top(self) -> float:
        return len(self.heading_lines) * HEADING_LINE + (MARGIN if self.heading else 0)

    @property
    def bottom(self) -> float:
        return 0.2 + 2 * MARGIN if self.legend else MARGIN

    @property
    def size(self) -> tuple[float, float]:
        rows = math.ceil(self.panels / self.columns)
        return self.width, self.top + rows * (TITLE + self.panel[1] + self.foot + GAP) + self.bottom

    def add_panel(self, fig: Figure | SubFigure, index: int) -> Axes:
        """Empty axes for a panel; panels are counted row by row."""
        width, height = self.panel
        row, column = divmod(index, self.columns)
        left = MARGIN + column * (width + GAP)
        top = self.top + row * (TITLE + height + self.foot + GAP) + TITLE
        return add_axes(fig, self.size, (left, top, width, height))

    def write_heading(self, fig: Figure | SubFigure) -> None:
        if not self.heading:
            return
        across, down = self.size
        fig.text(
            MARGIN / across, 1 - MARGIN / down, "\n".join(self.heading_lines), ha="left", va="top", fontsize=13,
            parse_math=False,
        )  # fmt: skip

    def add_legend(self, fig: Figure | SubFigure) -> Axes:
        """Axes for the bar that states the scale, with the legend's text beside it."""
        top = self.size[1] - self.bottom + MARGIN
        ax = add_axes(fig, self.size, (MARGIN + 0.1, top + 0.01, BAR, 0.12))
        beside = (BESIDE_BAR - MARGIN - 0.1) / BAR
        ax.text(
            beside, 0.5, self.legend_line, transform=ax.transAxes, va="center", fontsize=7.5, parse_math=False
        )
        return ax


def add_axes(
    fig: Figure | SubFigure, size: Sequence[float], place: Sequence[float], anchor: str = "C"
) -> Axes:
    """Empty axes at (left, top, width, height), in inches from the upper left corner of a figure of this size."""
    (across, down), (left, top, width, height) = size, place
    bounds = (left / across, 1 - (top + height) / down, width / across, height / down)
    return fig.add_axes(bounds, anchor=anchor)


def layout_of(
    panels: int, photo: tuple[int, int], feet: int, columns: int | None = None, rows: int | None = None
) -> Layout:
    """Where panels go that show a photo of this (width, height) in pixels, without heading and legend.

    Raises:
        ValueError: columns or rows is less than 1, or both are given.
    """
    if columns is not None and rows is not None:
        raise ValueError("rows and columns both say how panels are laid out: give one")
    if rows is not None:
        if rows < 1:
            raise ValueError(f"rows must be at least 1, not {rows}")
        columns = math.ceil(panels / rows)
    width, height = panel_size(photo)
    below = FOOT * feet
    if columns is None:
        columns = _columns(panels, (width + GAP, height + TITLE + below + GAP))
    if columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    return Layout(panels, min(columns, panels), (width, height), below)


def panel_size(photo: tuple[int, int]) -> tuple[float, float]:
    """Width and height of a panel. All have the same area, unless a side would become too short or too long."""
    stretch = math.sqrt(photo[0] / photo[1])
    width, height = PANEL * stretch, PANEL / stretch
    larger = max(1.0, SHORTEST / min(width, height))
    smaller = min(1.0, (PAGE - 2 * MARGIN) / (larger * max(width, height)))
    return width * larger * smaller, height * larger * smaller


def _columns(panels: int, panel: tuple[float, float]) -> int:
    """As many as make the whole about 1.6 times as wide as high, leaving few places empty, on the width of a page."""

    def fault(columns: int) -> float:
        rows = math.ceil(panels / columns)
        stretch = columns * panel[0] / (rows * panel[1])
        return abs(math.log(stretch / 1.6)) + 1.5 * (rows * columns - panels) / panels

    room = max(1, int((PAGE - 2 * MARGIN + GAP) / panel[0] + 1e-6))
    return min(range(1, min(panels, room) + 1), key=fault)
