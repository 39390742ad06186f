"""Figures of captions: a panel per word (Xu et al. 2015, figure 3) or per attention map, and captions compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from matplotlib.figure import Figure, SubFigure

from caption.data.photos import open_image
from caption.results.caption import Caption
from caption.visualize.figure_file import DPI
from caption.visualize.fonts import choose_fonts
from caption.visualize.layout import (
    BAR,
    BESIDE_BAR,
    MARGIN,
    Page,
    add_axes,
    grid_of,
    new_figure,
    tile_size,
    write_heading,
)
from caption.visualize.overlay import draw_scale
from caption.visualize.styles import OverlayOptions
from caption.visualize.tiles import MapOptions, Tile, TileOptions, Tiles, caption_tiles, write_title
from caption.visualize.words import spans_of, steps_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from caption.data.photos import Photo

WORD_WIDTHS = (640, 1920)
"""Pixels that the picture of a single word has at least, and at most."""


def plot_caption(
    caption: Caption,
    image: Photo,
    fig: Figure | None = None,
    *,
    rows: int | None = None,
    columns: int | None = None,
    title: bool = True,
    legend: bool = True,
    **options: Unpack[TileOptions],
) -> Figure:
    """Draw a caption: the sentence, the photo, then the photo under the map of each word.

    The sentence is at the top; if only some of its words are drawn, they are underlined. All words share one scale,
    stated by the bar at the bottom. It goes from 0 to the largest α of the caption, also of words that are not drawn;
    for signed weights it diverges from 0. Below each panel is the word's largest α in multiples of even attention, 1/L
    (of the mean weight, if weights are not distributions; as it is, if they are signed), then β, if the model has a
    gate, and the share of a sentinel, if there is one; below these, the thing that a lens sees. A frame marks the cell
    that hard attention chose, a cross the point that was chosen.

    Args:
        caption: T words with their weights.
        image: the photo, or its path, at its own resolution and aspect ratio.
        fig: a figure to draw on, at its own size; by default a new one of a size that suits the photo.
        rows, columns: of panels; by default the figure is about 1.6 times as wide as high, and no wider than a page.
        title: write the sentence above the panels.
        legend: state the scale below the panels, and the numbers of each word below its panel.
        options: `words`, `map`, `index`, `boxes` and `own_scale`, see `tiles.TileOptions`; `style` ("heat", "paper",
            "glow" or "cells"), `smooth`, `cmap` and `opacity`, see `styles.OverlayStyle`.

    Returns:
        the figure; `save_figure` writes it.

    Raises:
        ValueError: there is no such map or word; rows or columns is less than 1, or both are given; or the opacity is
            not between 0 and 1.
        caption.core.errors.ImageError: the photo cannot be opened.
    """
    tiles = caption_tiles(caption, image, **options)
    page = _page(tiles, caption if title else None, legend, columns, rows)
    drawn: Figure = _draw(fig or new_figure(page.size), tiles, page)
    choose_fonts(drawn)  # a figure of pyplot would not look for them
    return drawn


def plot_word(
    caption: Caption, image: Photo, word: str | int, ax: Axes | None = None, **options: Unpack[MapOptions]
) -> Figure:
    """Draw the map of one word over the photo and nothing else, on the scale that all words of the caption share.

    Args:
        caption, image, options: see `plot_caption`.
        word: of the caption, its first occurrence; or its place, counted from 0.
        ax: a panel of another figure to draw on, under the word as its title; None = a new figure.

    Returns:
        the figure of `ax`, or one that `save_figure` writes with as many pixels as the photo has, within WORD_WIDTHS.

    Raises:
        ValueError: there is no such map or word, or the opacity is not between 0 and 1.
        caption.core.errors.ImageError: the photo cannot be opened.
    """
    tiles = caption_tiles(caption, image, words=steps_of(caption, [word])[:1], **options)
    if ax is not None:
        tiles.draw_tile(ax, tiles.tiles[1])
        write_title(ax, tiles.tiles[1].title, 11.0)
        return ax.figure.figure
    smallest, largest = WORD_WIDTHS
    width = min(max(tiles.photo.width, smallest), largest)
    height = max(width * tiles.photo.height / tiles.photo.width, 1)
    fig = new_figure((width / DPI, height / DPI + 1e-6))  # Matplotlib rounds down
    ax = fig.add_axes((0, 0, 1, 1))
    tiles.draw_tile(ax, tiles.tiles[1])
    # Whole pixels give the figure nearly the photo's aspect ratio; "equal" would leave a white edge.
    ax.set_aspect("auto")
    return fig


def plot_maps(
    caption: Caption,
    image: Photo,
    map: str | None = None,
    word: int | None = None,
    **options: Unpack[OverlayOptions],
) -> Figure:
    """Draw the single maps of a caption, such as the heatmap of every head: one row per map, one column per word.

    All panels share one scale. Maps are labelled as `with_map` takes them: "heads[2]".

    Args:
        caption: with `maps`.
        image: the photo, or its path.
        map: the name of the maps to draw, such as "heads"; by default all.
        word: draw this word only, by its place in the caption: the photo, then one panel per map.
        options: see `plot_caption`.

    Raises:
        ValueError: there is no such map, or no map at all; there is no such word; or as for `plot_caption`.
        caption.core.errors.ImageError: the photo cannot be opened.
    """
    singles = caption.single_maps(map)
    if not singles:
        raise ValueError("this caption has no maps beside its weights: draw it with plot_caption")
    photo = open_image(image)
    if word is None:
        rows = (caption_tiles(single, photo, label) for label, single in singles.items())
        drawn = [tile for row in rows for tile in row.tiles]
    else:
        if not 0 <= word < len(caption.words):
            raise ValueError(f"word {word} is not among the {len(caption.words)} words: they count from 0")
        drawn = [Tile(caption.words[word], caption)]
        drawn += [Tile(label, single, single.weights[word], word) for label, single in singles.items()]
    tiles = Tiles(photo, drawn, **options)
    page = _page(tiles, caption, True, len(caption.words) + 1 if word is None else None)
    return _draw(new_figure(page.size), tiles, page)


def compare_captions(
    captions: Mapping[str, Caption],
    image: Photo,
    *,
    columns: int | None = None,
    **options: Unpack[TileOptions],
) -> Figure:
    """Draw several captions of one photo, one above the other (Xu et al. 2015, figure 2), panels in equal columns.

    Each caption has a scale of its own, stated by its own bar: on a common one a diffuse mechanism would be dark.

    Args:
        captions: at least one, by the name above its photo.
        image: the photo that they all describe, or its path.
        columns, options: see `plot_caption`. A caption without any of the words is drawn as the photo alone.

    Raises:
        ValueError: no captions, or as for `plot_caption`.
        caption.core.errors.ImageError: the photo cannot be opened.
    """
    if not captions:
        raise ValueError("there is nothing to compare: no captions")
    photo = open_image(image)
    sets = [
        caption_tiles(caption, photo, name, strict=False, **options) for name, caption in captions.items()
    ]
    if columns is None:
        columns = _page(max(sets, key=lambda tiles: len(tiles.tiles))).grid.columns
    pages = []
    for tiles, caption in zip(sets, captions.values(), strict=True):
        page = _page(tiles, caption, True, columns)
        # A short caption leaves places empty rather than spreading over the width.
        pages.append(page._replace(grid=page.grid._replace(columns=columns)))
    heights = [page.size[1] for page in pages]
    fig = new_figure((max(page.size[0] for page in pages), sum(heights)))
    parts = fig.subfigures(len(pages), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, page, tiles in zip(parts, pages, sets, strict=True):
        _draw(part, tiles, page)
        part.axes[0].title.set_fontweight("bold")
    return fig


def _page(
    tiles: Tiles,
    caption: Caption | None = None,
    legend: bool = True,
    columns: int | None = None,
    rows: int | None = None,
) -> Page:
    """The places of tiles, heading and legend.

    Args:
        tiles: of the caption.
        caption: is the heading, with a lens's remarks; the words that are drawn, if not all are, are underlined. None =
            no heading.
        legend, columns, rows: see `plot_caption`.

    Raises:
        ValueError: columns or rows is less than 1, or both are given.
    """
    has_legend = legend and bool(tiles.maps)
    lines = tiles.lines_below(has_legend, tile_size(tiles.photo.size)[0])
    page = Page(
        grid_of(len(tiles.tiles), tiles.photo.size, lines, columns, rows),
        legend=tuple(tiles.notes()) if has_legend else (),
    )
    if caption is None:
        return page
    sentence = " ".join(str(caption).split())
    steps = {tile.step for tile, _ in tiles.maps}
    spans = spans_of(caption.words, sentence, steps) if len(steps) < len(caption.words) else []
    return page._replace(heading=sentence, underlined=tuple(spans), remarks=tuple(caption.remarks))


def _draw(fig: Figure | SubFigure, tiles: Tiles, page: Page) -> Any:
    """Draw heading, tiles and legend on a figure or a part of one, and return it."""
    if page.heading:
        write_heading(fig, page)
    tiles.draw(fig, page.size, page, numbers=bool(page.legend))
    if page.legend:
        top = page.size[1] - 0.2 - MARGIN + 0.01
        ax = add_axes(fig, page.size, (MARGIN + 0.1, top, BAR, 0.12))
        draw_scale(ax, tiles.scale, tiles.regions, **tiles.options)
        if tiles.own_scale:
            ax.set_xticklabels([])
        beside = (BESIDE_BAR - MARGIN - 0.1) / BAR
        ax.text(
            beside, 0.5, page.legend_line, transform=ax.transAxes, va="center", fontsize=7.5, parse_math=False
        )
    return fig
