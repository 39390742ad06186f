"""Where tiles and text go in a figure, in inches from its upper left corner."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation, Transform

from caption.visualize.figure_file import NotebookFigure
from caption.visualize.fonts import is_right_to_left

# Inches.
PANEL = 1.9  # side of the square that has a tile's area
SHORTEST = 0.75  # smallest side of a tile, which has a word above and a peak below
PAGE = 10.0  # width of a figure, unless a single tile or the number of columns needs more
GAP = 0.08  # between tiles
TITLE = 0.27  # above a tile: its word
FOOT = 0.16  # a line below a tile: its peak and β, or the thing that the lens sees
MARGIN = 0.12
HEADING_LINE = 0.24  # of the sentence at the top
BAR = 1.2  # width of the bar that states the scale
NARROWEST = 5.0  # smallest width of a figure with text above or below
# Letters per inch of the sentence, the remarks and the legend.
HEADING_LETTERS, REMARK_LETTERS, LEGEND_LETTERS = 9.5, 14.0, 18.0
HEADING_POINTS, REMARK_POINTS = 13.0, 9.0
REMARK_LINE = 0.17  # of what a lens has to say about the caption
REMARK_COLOUR = "#b03000"
BELOW = 0.035  # from the letters' baseline to the line that underlines them
BESIDE_BAR = MARGIN + 0.1 + BAR + 0.3  # where the legend's text begins


class Grid(NamedTuple):
    """The places of tiles that show one photo, row by row."""

    tiles: int
    columns: int
    size: tuple[float, float]
    """Width and height of the photo in a tile."""
    above: float = TITLE
    """Height of the text over a tile."""
    below: float = 0.0
    """Height of the text under a tile."""
    left: float = MARGIN
    top: float = 0.0

    @property
    def width(self) -> float:
        return self.columns * (self.size[0] + GAP) - GAP

    @property
    def height(self) -> float:
        """With the gap below the last row."""
        return math.ceil(self.tiles / self.columns) * self._row

    @property
    def _row(self) -> float:
        return self.above + self.size[1] + self.below + GAP

    def place(self, index: int) -> tuple[float, float, float, float]:
        """Left, top, width and height of a tile's photo."""
        row, column = divmod(index, self.columns)
        width, height = self.size
        return self.left + column * (width + GAP), self.top + row * self._row + self.above, width, height


MORE = " …"
"""Ends a heading that is cut off."""


class Page(NamedTuple):
    """A grid with a heading above it and a legend below it."""

    grid: Grid
    heading: str = ""
    legend: tuple[str, ...] = ()
    """Notes for one line; the last ones are left out if it is too short."""
    underlined: tuple[tuple[int, int], ...] = ()
    """The parts of the heading that are underlined, from their first letter to the one after their last."""
    remarks: tuple[str, ...] = ()
    """Sentences below the heading."""

    @property
    def width(self) -> float:
        return max(self.grid.width + 2 * MARGIN, NARROWEST if self.heading or self.legend else 0.0)

    @property
    def heading_lines(self) -> list[str]:
        return textwrap.wrap(self.heading, int(HEADING_LETTERS * self.width), max_lines=4, placeholder=MORE)

    @property
    def remark_lines(self) -> list[str]:
        room = int(REMARK_LETTERS * (self.width - 2 * MARGIN))
        return [line for remark in self.remarks for line in textwrap.wrap(remark, room)]

    @property
    def legend_line(self) -> str:
        room = int(LEGEND_LETTERS * (self.width - BESIDE_BAR - MARGIN))
        lines = ("; ".join(self.legend[:count]) for count in range(len(self.legend), 1, -1))
        return next((line for line in lines if len(line) <= room), self.legend[0])

    @property
    def top(self) -> float:
        heading = len(self.heading_lines) * HEADING_LINE + (MARGIN if self.heading else 0)
        return heading + len(self.remark_lines) * REMARK_LINE

    @property
    def size(self) -> tuple[float, float]:
        bottom = 0.2 + 2 * MARGIN if self.legend else MARGIN
        return self.width, self.top + self.grid.height + bottom

    def place(self, index: int) -> tuple[float, float, float, float]:
        """Left, top, width and height of a tile's photo."""
        return self.grid._replace(top=self.top).place(index)


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty white figure of this (width, height) in inches."""
    return NotebookFigure(figsize=size, facecolor="white")


def add_axes(fig: Figure | SubFigure, size: Sequence[float], place: Sequence[float]) -> Axes:
    """Empty axes at (left, top, width, height), in inches from the upper left corner of a figure of this size."""
    (across, down), (left, top, width, height) = size, place
    bounds = (left / across, 1 - (top + height) / down, width / across, height / down)
    return fig.add_axes(bounds)


def write(
    fig: Figure | SubFigure, size: Sequence[float], left: float, top: float, text: str, **font: Any
) -> Text:
    """Write text at a place in inches from the upper left corner of a figure of this size."""
    return fig.text(left / size[0], 1 - top / size[1], text, parse_math=False, **font)


def write_heading(fig: Figure | SubFigure, page: Page) -> None:
    """Write the heading of a page, with its underlined words, and the remarks below it."""
    font = {"ha": "left", "va": "baseline"}
    start = 0
    for number, line in enumerate(page.heading_lines):
        baseline = MARGIN + (number + 0.75) * HEADING_LINE
        text = write(fig, page.size, MARGIN, baseline, line, fontsize=HEADING_POINTS, **font)
        # Letters have their size in points, also on a figure that is not of the page's size.
        origin = ScaledTranslation(*text.get_position(), fig.transSubfigure)  # type: ignore[arg-type]
        start = page.heading.index(line.removesuffix(MORE), start)
        for first, last in page.underlined:
            if start <= first < start + len(line):
                fig.add_artist(_Underline(text, fig.dpi_scale_trans + origin, first - start, last - start))
        start += len(line.removesuffix(MORE))  # the next line may begin with the same words
    top = MARGIN + len(page.heading_lines) * HEADING_LINE
    for number, line in enumerate(page.remark_lines):
        baseline = top + (number + 0.75) * REMARK_LINE
        write(fig, page.size, MARGIN, baseline, line, fontsize=REMARK_POINTS, color=REMARK_COLOUR, **font)


class _Underline(Line2D):
    """A line under a word of a text. Letters are rounded to pixels, so it is as long as they are in the picture
    that is drawn, whatever its resolution.

    Args:
        text: it begins at the origin.
        place: from inches to pixels.
        first, end: the word's letters in the text, from `first` to before `end`.
    """

    def __init__(self, text: Text, place: Transform, first: int, end: int) -> None:
        super().__init__(
            [0, 0], [-BELOW, -BELOW], color="black", linewidth=1, solid_capstyle="butt", transform=place
        )
        self._text, self._first, self._end = text, first, end

    def draw(self, renderer: RendererBase) -> None:
        text, font = self._text.get_text(), self._text.get_fontproperties()
        inch = cast(float, renderer.points_to_pixels(72))
        line, right, word = (
            renderer.get_text_width_height_descent(part, font, ismath=False)[0] / inch
            for part in (text, text[: self._end], text[self._first : self._end])
        )
        if is_right_to_left(text):
            right = line - right + word
        self.set_xdata([right - word, right])
        super().draw(renderer)


def grid_of(
    tiles: int, photo: tuple[int, int], lines: int, columns: int | None = None, rows: int | None = None
) -> Grid:
    """The grid of tiles of a photo of this (width, height) in pixels, with a number of lines of text under each.

    Raises:
        ValueError: columns or rows is less than 1, or both are given.
    """
    if columns is not None and rows is not None:
        raise ValueError("rows and columns both set the layout of the panels: give one of them")
    if rows is not None:
        if rows < 1:
            raise ValueError(f"rows must be at least 1, not {rows}")
        columns = math.ceil(tiles / rows)
    width, height = tile_size(photo)
    below = FOOT * lines
    if columns is None:
        columns = _columns(tiles, (width + GAP, height + TITLE + below + GAP))
    if columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    return Grid(tiles, min(columns, tiles), (width, height), below=below)


def tile_size(photo: tuple[int, int]) -> tuple[float, float]:
    """Width and height of a tile. All have the same area, unless a side would become too short or too long."""
    stretch = math.sqrt(photo[0] / photo[1])
    width, height = PANEL * stretch, PANEL / stretch
    larger = max(1.0, SHORTEST / min(width, height))
    smaller = min(1.0, (PAGE - 2 * MARGIN) / (larger * max(width, height)))
    return width * larger * smaller, height * larger * smaller


def _columns(tiles: int, tile: tuple[float, float]) -> int:
    """The columns with which a figure is about 1.6 times as wide as high, fits a page, and has few empty places."""

    def fault(columns: int) -> float:
        rows = math.ceil(tiles / columns)
        stretch = columns * tile[0] / (rows * tile[1])
        return abs(math.log(stretch / 1.6)) + 1.5 * (rows * columns - tiles) / tiles

    room = max(1, int((PAGE - 2 * MARGIN + GAP) / tile[0] + 1e-6))
    return min(range(1, min(tiles, room) + 1), key=fault)
