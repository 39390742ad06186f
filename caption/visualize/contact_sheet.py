"""The contact sheet: many photos on one scale, each beside its attention, or each in a row with its words' maps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from caption.data.decoding import open_image
from caption.lens_reading import once
from caption.visualize.figure import new_figure, seen_lines
from caption.visualize.layout import FOOT, GAP, MARGIN, NARROWEST, PAGE, TITLE, add_axes
from caption.visualize.overlay import draw_scale, overlay, photo_name, photos_of, show_photo
from caption.visualize.scale import Scale
from caption.visualize.styles import Look, LookOptions
from caption.visualize.words import Words, seen_at_words, steps_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from caption.data.decoding import Photo
    from caption.result import Caption

# Inches.
HEIGHT = 1.5  # of a photo, about
SPACE = 0.2  # between photos
LINE = 0.14  # of text
LEGEND = 0.4
LETTERS, NAME_LETTERS = 15.5, 17.0  # on an inch of a caption, and of a name
MOST_LINES = 5  # of a caption
MOST_SEEN_LINES = 2  # of what a lens sees at its words


class Entry(NamedTuple):
    """A photo on the sheet."""

    caption: Caption
    photo: Image.Image
    name: str

    @property
    def aspect(self) -> float:
        """Width over height."""
        return self.photo.width / self.photo.height


class Block(NamedTuple):
    """The pictures of an entry, which share their height, and the text of the entry below them."""

    entry: Entry
    left: float
    top: float
    height: float
    steps: tuple[int, ...] | None
    """The words whose maps are drawn; None = one map, the largest weights of all words."""

    @property
    def pictures(self) -> int:
        return 2 if self.steps is None else 1 + len(self.steps)

    @property
    def width(self) -> float:
        return self.pictures * (self.height * self.entry.aspect + GAP) - GAP

    @property
    def lines(self) -> list[str]:
        letters, room = (max(12, int(density * self.width)) for density in (LETTERS, NAME_LETTERS))
        name = self.entry.name if len(self.entry.name) <= room else f"{self.entry.name[: room - 1]}…"
        seen = once(thing for _, thing in seen_at_words(self.entry.caption)) if self.steps is None else []
        sees = f"sees: {', '.join(map(str, seen))}" if seen else ""
        return [
            name,
            *textwrap.wrap(str(self.entry.caption), letters, max_lines=MOST_LINES, placeholder=" …"),
            *textwrap.wrap(sees, letters, max_lines=MOST_SEEN_LINES, placeholder=" …"),
        ]

    @property
    def foot(self) -> float:
        """Height of what the lens sees at each word, under its map."""
        return FOOT if self.steps and self.entry.caption.lens is not None else 0.0

    @property
    def text_top(self) -> float:
        return self.top + self.height + self.foot + 0.06

    @property
    def bottom(self) -> float:
        return self.text_top + LINE * len(self.lines)


def contact_sheet(
    captions: Sequence[Caption],
    images: Sequence[Photo] | None = None,
    *,
    words: Words | None = None,
    names: Sequence[str] | None = None,
    columns: int | None = None,
    legend: bool = True,
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw each photo beside the maximum of its attention maps, with its name and caption beneath, on one scale.

    Where a lens has read the captions, what it sees at their words stands below, too.

    Photos keep their order and fill the page's width, row by row.

    Args:
        captions: at least one.
        images: their photos, in the same order; by default those that the captions carry.
        words: draw a row for each photo instead, with the maps of these words, see `plot_caption`. A photo whose
            caption has none of them stands alone in its row.
        names: of the photos, in the same order; by default the names of their files.
        columns: photos in a row at most.
        legend: state the scale at the bottom.
        look: see `plot_caption`.

    Raises:
        ValueError: no captions, not one photo or name each, columns below 1, no such style.
        caption.errors.ImageError: a photo cannot be opened.
    """
    photos = photos_of(captions, images)
    if columns is not None and columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    if names is not None and len(names) != len(photos):
        raise ValueError(f"{len(photos)} photos need as many names, not {len(names)}")
    names = [photo_name(photo, index) for index, photo in enumerate(photos)] if names is None else names
    entries = [
        Entry(caption, open_image(photo), name)
        for caption, photo, name in zip(captions, photos, names, strict=True)
    ]
    signed = any(caption.properties.signed for caption in captions)
    if words is None:
        blocks = _pairs(entries, columns)
        scale = Look(**look).scale_of(*(summary_map(caption) for caption in captions), signed=signed)
    else:
        blocks = _rows(entries, words)
        scale = Look(**look).scale_of(*(caption.weights for caption in captions), signed=signed)
    width = max(block.left + block.width for block in blocks) + MARGIN
    height = max(block.bottom for block in blocks) + (LEGEND if legend else 0.0) + MARGIN
    fig = new_figure((max(width, NARROWEST), height))
    for block in blocks:
        _draw(fig, block, scale, look)
    if legend:
        _write_legend(fig, scale, "α of a word" if words is not None else "largest α of all words", look)
    return fig


def summary_map(caption: Caption) -> np.ndarray:
    """(rows, cols) float32: the largest weight of each cell over the words, by magnitude if signed; 0 without words."""
    weights = caption.weights
    if not caption.words:
        return np.zeros(weights.shape[1:], np.float32)
    size = np.abs(weights) if caption.properties.signed else weights
    return np.take_along_axis(weights, size.argmax(axis=0)[None], axis=0)[0]


def _pairs(entries: Sequence[Entry], columns: int | None) -> list[Block]:
    """Photos beside their maps, in rows that fill the page."""
    blocks: list[Block] = []
    top = MARGIN
    for row, height in _broken_into_rows([entry.aspect for entry in entries], columns):
        left = MARGIN
        for index in row:
            blocks.append(Block(entries[index], left, top, height, None))
            left += blocks[-1].width + SPACE
        top = max(blocks[index].bottom for index in row) + 0.1
    return blocks


def _broken_into_rows(aspects: Sequence[float], columns: int | None) -> list[tuple[range, float]]:
    """The photos of each row, and the height at which they fill the page, together as near to HEIGHT as can be.

    Fewer than fill a row make the page narrower.
    """
    count = len(aspects)
    most = columns or count
    widest = max(
        sum(2 * HEIGHT * aspect + GAP + SPACE for aspect in aspects[first : first + most])
        for first in range(0, count, most)
    )
    page = min(PAGE - 2 * MARGIN, max(widest - SPACE, NARROWEST - 2 * MARGIN))

    def height_of(row: range) -> float:
        return (page - len(row) * (GAP + SPACE) + SPACE) / (2 * sum(aspects[index] for index in row))

    # The least sum of squared deviations from HEIGHT, in factors, of the rows before each photo.
    least, begin = [0.0], [0]
    for end in range(1, count + 1):
        costs = {}
        for first in range(max(0, end - most), end):
            height = height_of(range(first, end))
            if height > 0.1 or first == end - 1:
                costs[first] = least[first] + math.log(max(height, 0.01) / HEIGHT) ** 2
        begin.append(min(costs, key=lambda first: costs[first]))
        least.append(costs[begin[-1]])
    rows: list[range] = []
    end = count
    while end:
        rows.insert(0, range(begin[end], end))
        end = begin[end]
    # A last row of one tall photo would be larger than all the others.
    return [(row, min(height_of(row), 1.5 * HEIGHT)) for row in rows]


def _rows(entries: Sequence[Entry], words: Words) -> list[Block]:
    """A row for each photo, with the maps of its words."""
    blocks: list[Block] = []
    top = MARGIN
    for entry in entries:
        steps = tuple(steps_of(entry.caption, words, strict=False))
        room = (PAGE - 2 * MARGIN - len(steps) * GAP) / ((1 + len(steps)) * entry.aspect)
        blocks.append(Block(entry, MARGIN, top + TITLE, min(HEIGHT, room), steps))
        top = blocks[-1].bottom + 0.06
    return blocks


def _draw(fig: Figure, block: Block, scale: Scale, look: LookOptions) -> None:
    caption, size = block.entry.caption, tuple(fig.get_size_inches())
    width = block.height * block.entry.aspect

    def place(picture: int) -> tuple[float, float, float, float]:
        return block.left + picture * (width + GAP), block.top, width, block.height

    show_photo(add_axes(fig, size, place(0)), block.entry.photo)
    maps = {"": summary_map(caption)} if block.steps is None else {}
    drawn = [*maps.items(), *((caption.words[step], caption.weights[step]) for step in block.steps or ())]
    for number, (word, weights) in enumerate(drawn, start=1):
        ax = add_axes(fig, size, place(number))
        overlay(ax, weights, caption.box, block.entry.photo, scale, seen=caption.seen, **look)
        ax.set_title(word, fontsize=9, pad=3, parse_math=False)
        if block.steps is not None:
            for line in seen_lines(caption, block.steps[number - 1]):
                ax.text(0.5, -0.02, line, transform=ax.transAxes, ha="center", va="top", fontsize=8)
    for number, line in enumerate(block.lines):
        across, down = block.left / size[0], 1 - (block.text_top + number * LINE) / size[1]
        letters, colour = (7, "0.45") if number == 0 else (8, "0.1")
        fig.text(across, down, line, ha="left", va="top", parse_math=False, fontsize=letters, color=colour)


def _write_legend(fig: Figure, scale: Scale, what: str, look: LookOptions) -> None:
    size = tuple(fig.get_size_inches())
    ax = add_axes(fig, size, (MARGIN + 0.1, size[1] - LEGEND - MARGIN + 0.14, 1.1, 0.12))
    draw_scale(ax, scale, **look)
    note = f"{what}, one scale for all photos" + ("; orange above 0, blue below" if scale.signed else "")
    ax.text(1.2, 0.5, note, transform=ax.transAxes, va="center", fontsize=7)
