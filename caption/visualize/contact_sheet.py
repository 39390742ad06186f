"""The contact sheet: many photos on one scale, each beside its attention, or each in a row with its words' maps."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
from matplotlib.figure import Figure

from caption.data.photos import open_image
from caption.results.lens_reading import distinct_things
from caption.visualize.layout import FOOT, GAP, MARGIN, NARROWEST, PAGE, Grid, add_axes, new_figure, write
from caption.visualize.overlay import draw_scale, photo_names, photos_of
from caption.visualize.scale import Scale
from caption.visualize.styles import OverlayOptions, OverlayStyle
from caption.visualize.tiles import Tile, Tiles, caption_tiles
from caption.visualize.words import Words, seen_at_words

if TYPE_CHECKING:
    from caption.data.photos import Photo
    from caption.results.caption import Caption

# Inches.
HEIGHT = 1.5  # of a photo, at most
SPACE = 0.2  # between photos
LINE = 0.14  # of text
LEGEND = 0.4
LETTERS, NAME_LETTERS = 15.5, 17.0  # on an inch of a caption, and of a name
MOST_COLUMNS = 20  # of very narrow photos
MOST_LINES = 5  # of a caption
MOST_SEEN_LINES = 2  # of the things that a lens sees at its words


class Block(NamedTuple):
    """The tiles of a photo in a row, and its name and caption below them."""

    tiles: Tiles
    name: str
    grid: Grid
    with_seen: bool
    """Whether the text lists the things that a lens sees."""

    @property
    def caption(self) -> Caption:
        return self.tiles.tiles[0].caption

    @property
    def lines(self) -> list[str]:
        letters, room = (max(12, int(density * self.grid.width)) for density in (LETTERS, NAME_LETTERS))
        name = self.name if len(self.name) <= room else f"{self.name[: room - 1]}…"
        things = distinct_things(thing for _, thing in seen_at_words(self.caption)) if self.with_seen else []
        sees = f"sees: {', '.join(map(str, things))}" if things else ""
        return [
            name,
            *textwrap.wrap(str(self.caption), letters, max_lines=MOST_LINES, placeholder=" …"),
            *textwrap.wrap(sees, letters, max_lines=MOST_SEEN_LINES, placeholder=" …"),
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
        for number, line in enumerate(self.lines):
            letters, colour = (7, "0.45") if number == 0 else (8, "0.1")
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
    **options: Unpack[OverlayOptions],
) -> Figure:
    """Draw each photo beside the maximum of its attention maps, with its name and caption beneath, on one scale.

    Photos keep their order and fill each row to the page's width. If a lens has read the captions, the things that it
    sees at their words are listed below, too.

    Args:
        captions: at least one.
        images: their photos, in the same order; by default those that the captions carry.
        words: draw a row for each photo instead, with the maps of these words, see `plot_caption`, and the place that
            was chosen for each. A photo whose caption has none of them is alone in its row.
        names: of the photos, in the same order; by default the names of their files.
        columns: photos in a row at most.
        legend: state the scale at the bottom.
        options: see `plot_caption`.

    Raises:
        ValueError: there are no captions, not one photo or name for each, or no such style; columns is less than 1.
        caption.core.errors.ImageError: a photo cannot be opened.
    """
    photos = photos_of(captions, images)
    if columns is not None and columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    names = photo_names(photos, names)
    signed = any(caption.properties.signed for caption in captions)
    maps = (summary_map(caption) if words is None else caption.weights for caption in captions)
    scale = OverlayStyle(**options).scale_of(*maps, signed=signed)
    rows = []
    for caption, photo in zip(captions, map(open_image, photos), strict=True):
        if words is None:
            pair = [Tile("", caption), Tile("", caption, summary_map(caption))]
            rows.append(Tiles(photo, pair, scale=scale, **options))
        else:
            rows.append(caption_tiles(caption, photo, strict=False, words=words, scale=scale, **options))
    blocks = _pairs(rows, names, columns) if words is None else _rows(rows, names)
    width = max(block.grid.left + block.grid.width for block in blocks) + MARGIN
    height = max(block.bottom for block in blocks) + (LEGEND if legend else 0.0) + MARGIN
    fig = new_figure((max(width, NARROWEST), height))
    for block in blocks:
        block.draw(fig)
    if legend:
        _write_legend(fig, captions, scale, words is not None, options)
    return fig


def summary_map(caption: Caption) -> np.ndarray:
    """(rows, cols) float32: the largest weight of each cell over the words, by magnitude if signed; 0 without words."""
    weights = caption.weights
    if not caption.words:
        return np.zeros(weights.shape[1:], np.float32)
    size = np.abs(weights) if caption.properties.signed else weights
    return np.take_along_axis(weights, size.argmax(axis=0)[None], axis=0)[0]


def _pairs(pairs: Sequence[Tiles], names: Sequence[str], columns: int | None) -> list[Block]:
    """Photos beside their maps; each row takes photos until the page is full."""
    blocks: list[Block] = []
    top = MARGIN
    aspects = [_aspect(pair) for pair in pairs]
    for row, height in _broken_into_rows(aspects, columns or MOST_COLUMNS):
        left = MARGIN
        for index in row:
            grid = Grid(2, 2, (height * aspects[index], height), 0.0, 0.0, left, top)
            blocks.append(Block(pairs[index], names[index], grid, True))
            left += grid.width + SPACE
        top = max(blocks[index].bottom for index in row) + 0.1
    return blocks


def _broken_into_rows(aspects: Sequence[float], columns: int) -> list[tuple[list[int], float]]:
    """The photos of each row, and their height: HEIGHT, or less where the row would be wider than the page."""
    rows: list[tuple[list[int], float]] = []
    row: list[int] = []
    for index in range(len(aspects)):
        row.append(index)
        width = PAGE - 2 * MARGIN - len(row) * (GAP + SPACE) + SPACE
        height = width / (2 * sum(aspects[place] for place in row))
        if height <= HEIGHT or len(row) == columns or index == len(aspects) - 1:
            rows.append((row, min(height, HEIGHT)))
            row = []
    return rows


def _rows(rows: Sequence[Tiles], names: Sequence[str]) -> list[Block]:
    """A row for each photo, with the maps of its words."""
    blocks: list[Block] = []
    top = MARGIN
    for row, name in zip(rows, names, strict=True):
        count, aspect = len(row.tiles), _aspect(row)
        height = min(HEIGHT, (PAGE - 2 * MARGIN - (count - 1) * GAP) / (count * aspect))
        grid = Grid(count, count, (height * aspect, height), below=FOOT * row.lines_below(False), top=top)
        blocks.append(Block(row, name, grid, False))
        top = blocks[-1].bottom + 0.06
    return blocks


def _aspect(tiles: Tiles) -> float:
    """Width of the photo over its height."""
    return tiles.photo.width / tiles.photo.height


def _write_legend(
    fig: Figure, captions: Sequence[Caption], scale: Scale, of_words: bool, options: OverlayOptions
) -> None:
    size = tuple(fig.get_size_inches())
    ax = add_axes(fig, size, (MARGIN + 0.1, size[1] - LEGEND - MARGIN + 0.14, 1.1, 0.12))
    draw_scale(ax, scale, **options)
    notes = {
        f"{'α of a word' if of_words else 'largest α of all words'}, one scale for all photos": True,
        "orange above 0, blue below": scale.signed,
        "frame: cell read": of_words and any(caption.maps.locations is not None for caption in captions),
        "cross: point read": of_words and any(caption.maps.points is not None for caption in captions),
    }
    text = "; ".join(note for note, applies in notes.items() if applies)
    ax.text(1.2, 0.5, text, transform=ax.transAxes, va="center", fontsize=7)
