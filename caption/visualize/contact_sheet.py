"""The contact sheet: many photos, each beside its attention, or beside the maps of its words, on a scale of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
from matplotlib.figure import Figure

from caption.data.photos import open_image
from caption.results.lens_reading import distinct_things
from caption.visualize.layout import (
    FOOT,
    GAP,
    MARGIN,
    NARROWEST,
    PAGE,
    REMARK_COLOUR,
    TITLE,
    Grid,
    add_axes,
    new_figure,
    write,
)
from caption.visualize.overlay import draw_scale, photo_names, photos_of
from caption.visualize.scale import Scale
from caption.visualize.styles import OverlayOptions
from caption.visualize.tiles import Tile, Tiles, caption_tiles
from caption.visualize.words import Words, seen_at_words

if TYPE_CHECKING:
    from caption.data.photos import Photo
    from caption.results.caption import Caption

# Inches.
HEIGHT = 1.5  # of a photo, at most where others are beside it
SPACE = 0.2  # between photos
LINE = 0.14  # of text
LEGEND = 0.4
LETTERS, NAME_LETTERS = 15.5, 17.0  # on an inch of a caption, and of a name
MOST_COLUMNS = 20  # of very narrow photos
LEAST_SHARE = 0.6  # of HEIGHT, below which a photo begins a new row
MOST_LINES = 5  # of a caption
MOST_SEEN_LINES = 2  # of the things that a lens sees at its words


class Block(NamedTuple):
    """The tiles of a photo side by side, and its name and caption below them."""

    tiles: Tiles
    name: str
    grid: Grid
    peak: str
    """The highest weight of its scale, beside its name; "" if all photos share a scale."""
    with_seen: bool
    """Whether the text lists the things that a lens sees."""

    @property
    def caption(self) -> Caption:
        return self.tiles.tiles[0].caption

    @property
    def lines(self) -> list[tuple[str, float, str]]:
        """Each with the size of its letters in points, and its colour."""
        letters, room = (max(12, int(density * self.grid.width)) for density in (LETTERS, NAME_LETTERS))
        room -= len(self.peak)
        name = self.name if len(self.name) <= room else f"{self.name[: room - 1]}…"
        things = distinct_things(thing for _, thing in seen_at_words(self.caption)) if self.with_seen else []
        sees = f"sees: {', '.join(map(str, things))}" if things else ""
        text = textwrap.wrap(str(self.caption), letters, max_lines=MOST_LINES, placeholder=" …")
        text += textwrap.wrap(sees, letters, max_lines=MOST_SEEN_LINES, placeholder=" …")
        remarks = [line for remark in self.caption.remarks for line in textwrap.wrap(remark, letters)]
        return [
            (name + self.peak, 7, "0.45"),
            *((line, 8, "0.1") for line in text),
            *((line, 8, REMARK_COLOUR) for line in remarks),
        ]

    @property
    def text_top(self) -> float:
        return self.grid.top + self.grid.above + self.grid.size[1] + self.grid.below + 0.06

    @property
    def bottom(self) -> float:
        return self.text_top + LINE * len(self.lines)

    def draw(self, fig: Figure) -> None:
        size = tuple(fig.get_size_inches())
        self.tiles.draw(fig, size, self.grid, letters=9)
        for number, (line, letters, colour) in enumerate(self.lines):
            top = self.text_top + number * LINE
            write(fig, size, self.grid.left, top, line, ha="left", va="top", fontsize=letters, color=colour)


def contact_sheet(
    captions: Sequence[Caption],
    images: Sequence[Photo] | None = None,
    *,
    words: Words | None = None,
    names: Sequence[str] | None = None,
    columns: int | None = None,
    legend: bool = True,
    scale: Scale | None = None,
    **options: Unpack[OverlayOptions],
) -> Figure:
    """Draw each photo beside the maximum of its attention maps, with its name and caption beneath.

    Photos keep their order and fill each row to the page's width. Each has a scale of its own, whose end is beside its
    name. If a lens has read the captions, the things that it sees at their words are listed below, too, and its
    remarks.

    Args:
        captions: at least one.
        images: their photos, in the same order; by default those that the captions carry.
        words: draw the maps of these words instead, see `plot_caption`, and the place that was chosen for each. A photo
            whose caption has none of them is drawn alone.
        names: of the photos, in the same order; by default the names of their files.
        columns: photos in a row at most.
        legend: state the scale at the bottom.
        scale: of all photos, to compare their weights, such as `OverlayStyle.scale_of` gives.
        options: see `plot_caption`.

    Raises:
        ValueError: there are no captions, not one photo or name for each, or no such style; columns is less than 1.
        caption.core.errors.ImageError: a photo cannot be opened.
    """
    photos = photos_of(captions, images)
    if columns is not None and columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    names = photo_names(photos, names)
    sets = []
    for caption, photo in zip(captions, map(open_image, photos), strict=True):
        if words is None:
            pair = [Tile("", caption), Tile("", caption, summary_map(caption))]
            sets.append(Tiles(photo, pair, scale=scale, **options))
        else:
            sets.append(caption_tiles(caption, photo, strict=False, words=words, scale=scale, **options))
    blocks = _blocks(sets, names, columns, words is None, scale is not None)
    width = max(block.grid.left + block.grid.width for block in blocks) + MARGIN
    height = max(block.bottom for block in blocks) + (LEGEND if legend else 0.0) + MARGIN
    fig = new_figure((max(width, NARROWEST), height))
    for block in blocks:
        block.draw(fig)
    if legend:
        _write_legend(fig, captions, sets, scale, words is not None, options)
    return fig


def summary_map(caption: Caption) -> np.ndarray:
    """(rows, cols) float32: the largest weight of each cell over the words, by magnitude if signed; 0 without words."""
    weights = caption.weights
    if not caption.words:
        return np.zeros(weights.shape[1:], np.float32)
    size = np.abs(weights) if caption.properties.signed else weights
    return np.take_along_axis(weights, size.argmax(axis=0)[None], axis=0)[0]


def _blocks(
    sets: Sequence[Tiles], names: Sequence[str], columns: int | None, with_seen: bool, one_scale: bool
) -> list[Block]:
    """The photos with their maps; each row takes photos until the page is full."""
    blocks: list[Block] = []
    top = MARGIN
    above = 0.0 if with_seen else TITLE
    for row, height in _broken_into_rows(sets, columns or MOST_COLUMNS):
        left = MARGIN
        lines = max(sets[index].lines_below(False, height * _aspect(sets[index])) for index in row)
        for index in row:
            tiles = sets[index]
            count = len(tiles.tiles)
            size = height * _aspect(tiles), height
            grid = Grid(count, count, size, above, FOOT * lines * (not with_seen), left, top)
            peak = (
                ""
                if one_scale or not tiles.maps
                else f"   {tiles.maps[0][0].caption.symbol} ≤ {tiles.scale.high:.2g}"
            )
            blocks.append(Block(tiles, names[index], grid, peak, with_seen))
            left += grid.width + SPACE
        top = max(blocks[index].bottom for index in row) + 0.1
    return blocks


def _broken_into_rows(sets: Sequence[Tiles], columns: int) -> list[tuple[list[int], float]]:
    """The photos of each row, and their height: HEIGHT, or less where the row would be wider than the page.

    A row that no other follows may be higher, to be as wide as the legend.
    """
    rows: list[tuple[list[int], float]] = []
    row: list[int] = []
    for index in range(len(sets)):
        if row and _height([*row, index], sets, PAGE) < LEAST_SHARE * HEIGHT:
            rows.append((row, min(_height(row, sets, PAGE), HEIGHT)))
            row = []
        row.append(index)
        height = _height(row, sets, PAGE)
        if height <= HEIGHT or len(row) == columns:
            rows.append((row, min(height, HEIGHT)))
            row = []
    if row:
        rows.append((row, HEIGHT))
    if len(rows) == 1:
        ((row, height),) = rows
        most = min(_height(row, sets, NARROWEST), 2.5 * HEIGHT)
        return [(row, max(height, most))]
    return rows


def _height(row: Sequence[int], sets: Sequence[Tiles], page: float) -> float:
    """The height at which the photos of a row, with their maps, are as wide as a page."""
    tiles = sum(len(sets[index].tiles) for index in row)
    gaps = (tiles - len(row)) * GAP + (len(row) - 1) * SPACE
    width = page - 2 * MARGIN - gaps
    return width / sum(len(sets[index].tiles) * _aspect(sets[index]) for index in row)


def _aspect(tiles: Tiles) -> float:
    """Width of the photo over its height."""
    return tiles.photo.width / tiles.photo.height


def _write_legend(
    fig: Figure,
    captions: Sequence[Caption],
    sets: Sequence[Tiles],
    scale: Scale | None,
    of_words: bool,
    options: OverlayOptions,
) -> None:
    size = tuple(fig.get_size_inches())
    ax = add_axes(fig, size, (MARGIN + 0.1, size[1] - LEGEND - MARGIN + 0.14, 1.1, 0.12))
    draw_scale(ax, scale or sets[0].scale, **options)
    if scale is None and len(sets) > 1:
        ax.set_xticks([])
    whose = "each photo has a scale of its own" if scale is None else "one scale for all photos"
    symbol, method = captions[0].symbol, captions[0].method
    notes = {
        f"{symbol} of a word" if of_words else f"largest {symbol} of all words": True,
        f"{symbol}: {method}": bool(method),
        whose: len(sets) > 1,
        "orange above 0, blue below": any(caption.properties.signed for caption in captions),
        "frame: cell read": of_words and any(caption.maps.locations is not None for caption in captions),
        "cross: point read": of_words and any(caption.maps.points is not None for caption in captions),
    }
    text = "; ".join(note for note, applies in notes.items() if applies)
    ax.text(1.2, 0.5, text, transform=ax.transAxes, va="center", fontsize=7)
