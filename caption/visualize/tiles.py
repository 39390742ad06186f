"""Tiles: small pictures of one photo, alone or under the map of a word. Figures, sheets and animations draw them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from PIL import Image

from caption.data.box_faults import box_fault
from caption.data.boxes import Boxes
from caption.data.photos import open_image
from caption.results.caption import Caption, map_label
from caption.results.lens_reading import LEAST_SEEN
from caption.text.mentions import find_mentions
from caption.visualize.fonts import text_width
from caption.visualize.layout import FOOT, Grid, Page, add_axes
from caption.visualize.overlay import covers, draw_boxes, overlay, show_photo
from caption.visualize.scale import Scale
from caption.visualize.styles import OverlayOptions, OverlayStyle, style_of
from caption.visualize.words import Words, steps_of

if TYPE_CHECKING:
    from caption.data.photos import Photo

FOOT_POINTS = 8.0
LEAST_POINTS = 6.0  # of a title


class Tile(NamedTuple):
    """The photo of a caption, alone or under a map."""

    title: str
    caption: Caption
    weights: np.ndarray | None = None
    """(rows, cols) the map over the photo; None for the photo alone."""
    step: int | None = None
    """The word whose map it is; None for a map of several words."""


class MapOptions(OverlayOptions, total=False):
    """Which map of a word is drawn, and how."""

    map: str | None
    """Draw this one of `caption.maps` instead of `caption.weights`, see `Caption.with_map`."""
    index: int | tuple[int, ...] | None
    """Of the head, hop, ... in the map."""
    boxes: Boxes | None
    """Of objects by name, in the photo's pixels: drawn on the photo, and on the word that names the object."""
    own_scale: bool
    """Whether each map has a scale of its own, as in the authors' notebook. An even map then looks as sharp as a
    peaked one."""


class TileOptions(MapOptions, total=False):
    """Which words and maps of a caption are drawn, and how."""

    words: Words | None
    """Draw only these: words of the caption, or their places in it, counted from 0; or a number of words, for those
    that name things (`words.steps_of`)."""


class Tiles:
    """Tiles of one photo that share a scale and a style.

    Args:
        photo: the photo.
        tiles: the pictures to draw, in order.
        boxes: of objects by name, see `TileOptions`.
        scale: of all maps; by default that of the maps drawn.
        own_scale: see `MapOptions`.
        options: see `styles.OverlayStyle`.
    """

    def __init__(
        self,
        photo: Image.Image,
        tiles: Sequence[Tile],
        boxes: Boxes | None = None,
        scale: Scale | None = None,
        own_scale: bool = False,
        **options: Unpack[OverlayOptions],
    ) -> None:
        self.own_scale = own_scale
        self.photo, self.tiles, self.boxes, self.options = photo, list(tiles), boxes or {}, options
        self.style = OverlayStyle(**options)
        self.maps = [(tile, tile.weights) for tile in tiles if tile.weights is not None]
        signed = any(tile.caption.properties.signed for tile, _ in self.maps)
        self.scale = scale or self.style.scale_of(*(weights for _, weights in self.maps), signed=signed)
        # Even attention has one place on the scale only if all maps are distributions over equally many cells.
        sizes = {weights.size for _, weights in self.maps}
        even = (
            not own_scale
            and len(sizes) == 1
            and all(tile.caption.properties.is_distribution for tile, _ in self.maps)
        )
        self.regions = sizes.pop() if even else None

    def lines_below(self, numbers: bool, width: float) -> int:
        """Number of lines of text under tiles of this width in inches."""
        return max((len(self.foot(tile, numbers, width)) for tile, _ in self.maps), default=0)

    def foot(self, tile: Tile, numbers: bool, width: float) -> list[str]:
        """The lines under a tile of this width in inches: the numbers of its word, and what a lens sees there."""
        if tile.step is None:
            return []
        thing = None if tile.caption.lens is None else tile.caption.lens.seen(tile.step, LEAST_SEEN)
        lines = _lines(_numbers(tile.caption, tile.step, self.scale), "   ", width) if numbers else []
        return lines + ([] if thing is None else _lines(f"sees: {thing}".split(), " ", width))

    def draw(
        self,
        fig: Figure | SubFigure,
        size: Sequence[float],
        places: Grid | Page,
        numbers: bool = False,
        letters: float = 11.0,
    ) -> None:
        """Draw all tiles on a figure of this (width, height) in inches.

        Args:
            fig, size, places: where.
            numbers: write a word's peak and gate under its tile. The thing that a lens sees is always written.
            letters: the size of titles in points.
        """
        for index, tile in enumerate(self.tiles):
            ax = add_axes(fig, size, places.place(index))
            self.draw_tile(ax, tile)
            write_title(ax, tile.title, letters)
            _, _, width, height = places.place(index)
            for number, line in enumerate(self.foot(tile, numbers, width)):
                points = _points_for(line, FOOT_POINTS, width)
                y = -(number * FOOT + 0.04) / height
                ax.text(0.5, y, line, transform=ax.transAxes, ha="center", va="top", fontsize=points)

    def draw_tile(self, ax: Axes, tile: Tile) -> None:
        """Draw the photo, or a map over it, with the boxes of the objects that its word names."""
        caption, step = tile.caption, tile.step
        if tile.weights is None:
            draw_boxes(show_photo(ax, self.photo), chain.from_iterable(self.boxes.values()))
            return
        mentions = find_mentions(caption.words, self.boxes) if self.boxes else []
        scale = self.scale
        if self.own_scale:
            scale = self.style.scale_of(tile.weights, signed=caption.properties.signed)
        overlay(
            ax, tile.weights, caption.box, self.photo, scale, seen=caption.seen,
            location=None if step is None or caption.maps.locations is None else caption.maps.locations[step],
            point=None if step is None or caption.maps.points is None else caption.maps.points[step],
            boxes=chain.from_iterable(mention.boxes for mention in mentions if mention.word == step),
            **self.options,
        )  # fmt: skip

    def notes(self) -> list[str]:
        """The legend's notes on the maps, most important first."""
        caption = self.maps[0][0].caption
        properties = caption.properties
        preset = style_of(self.style.style)
        own_colours = self.style.cmap is not None and self.style.style != "heat"
        even = "even attention" if properties.is_distribution else "the mean weight"
        line = "" if self.regions is None else f" (1/{self.regions})"
        symbol = caption.symbol
        if properties.signed:
            colours = f"colour: {symbol}" if self.style.cmap else f"orange: {symbol} above 0, blue: below"
        elif own_colours or preset.level != "even":
            what = "colour" if own_colours else preset.legend
            blurred = ", blurred" * self.style.is_blurred
            colours = f"{what}: {symbol}{blurred}" + (f"; line: {even}{line}" if line else "")
        else:
            colours = f"{preset.legend}: above {even}{line}"
        notes = {
            colours: True,
            f"{symbol}: {caption.method}": bool(caption.method),
            f"each map from its own lowest {symbol} to its own highest": self.own_scale,
            "hatched: unseen": not covers(caption.seen or caption.box, self.photo.size),
            "frame: cell read": caption.maps.locations is not None,
            "cross: point read": caption.maps.points is not None,
            "β: use of the image": caption.gates is not None,
            "sentinel: share of no region": properties.sentinel,
            "Σα need not be 1": not properties.sums_to_one and not caption.method,
        }
        return [note for note, applies in notes.items() if applies]


def caption_tiles(
    caption: Caption,
    image: Photo,
    title: str = "",
    strict: bool = True,
    *,
    words: Words | None = None,
    map: str | None = None,
    index: int | tuple[int, ...] | None = None,
    boxes: Boxes | None = None,
    scale: Scale | None = None,
    own_scale: bool = False,
    **options: Unpack[OverlayOptions],
) -> Tiles:
    """The photo under a title, then the map of each word, by default on the scale of all the caption's words.

    Args:
        caption, image: see `plot_caption`.
        title: of the photo; the name of a map is added.
        strict: raise an error for words that the caption does not have instead of leaving them out.
        words, map, index, boxes, own_scale, options: see `TileOptions`.
        scale: shared by several captions.

    Raises:
        ValueError: there is no such word or map, `index` is given without `map`, or a box is wrong
            (`caption.data.box_faults`).
        caption.core.errors.ImageError: the photo cannot be opened.
    """
    if map is None and index is not None:
        raise ValueError("index is that of a map: give map=, such as map='heads'")
    photo = open_image(image)
    for name, box in ((name, box) for name, several in (boxes or {}).items() for box in several):
        if fault := box_fault(box, (0, 0, *photo.size)):
            raise ValueError(f"{name}: {fault}")
    steps = steps_of(caption, words, strict)
    if map is not None:
        caption = caption.with_map(map, index)
        label = map_label(map, index)
        title = f"{title}, {label}" if title else label
    scale = scale or OverlayStyle(**options).scale_of(caption.weights, signed=caption.properties.signed)
    of_words = [Tile(caption.words[step], caption, caption.weights[step], step) for step in steps]
    return Tiles(photo, [Tile(title, caption), *of_words], boxes, scale, own_scale, **options)


def write_title(ax: Axes, title: str, letters: float) -> None:
    """Write a title over a tile, in `letters` points or as small as its width requires."""
    width = ax.get_position().width * ax.figure.bbox.width / ax.figure.dpi
    shown = title
    while len(shown) > 1 and text_width(shown, LEAST_POINTS) > width:
        shown = f"{shown.removesuffix('…')[:-1]}…"
    ax.set_title(shown, fontsize=_points_for(shown, letters, width), pad=3, parse_math=False)


def _points_for(line: str, points: float, width: float) -> float:
    """The size at which a line is no wider than `width` inches: `points`, or less."""
    wide = 1.05 * text_width(line, points)  # at some resolutions, hinted letters are wider
    return points if wide <= width else points * width / wide


def _lines(parts: list[str], between: str, width: float) -> list[str]:
    """The parts in lines no wider than `width` inches, unless a single part is."""
    lines = parts[:1]
    for part in parts[1:]:
        longer = lines[-1] + between + part
        if text_width(longer, FOOT_POINTS) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _numbers(caption: Caption, step: int, scale: Scale) -> list[str]:
    """The peak of a word, the gate β and the share of the sentinel."""
    parts = [peak_text(caption, step, scale)]
    if caption.gates is not None:
        parts.append(f"β {caption.gates[step]:.2f}")
    if caption.sentinel_shares is not None:
        # Adding 0 turns −0.0 into 0.0.
        parts.append(f"sentinel {round(float(caption.sentinel_shares[step]), 2) + 0.0:.2f}")
    return parts


def peak_text(caption: Caption, step: int, scale: Scale) -> str:
    """The largest weight of a word, in multiples of even attention, "8.7× even", or of the mean weight.

    The largest of signed weights, in magnitude, is given as it is.
    """
    weights = caption.weights[step]
    if caption.properties.signed:
        peak = float(weights.ravel()[np.abs(weights).argmax()])
        return f"{caption.symbol} {peak:.2g}".replace("-", "−")
    if caption.properties.is_distribution:
        return f"{_times(float(weights.max()) * weights.size)} even"
    if scale.mean > 0:
        return f"{_times(float(weights.max()) / scale.mean)} mean"
    return f"{caption.symbol} 0"


def _times(multiple: float) -> str:
    return f"{multiple:.1f}×" if multiple < 99.5 else f"{multiple:.0f}×"
