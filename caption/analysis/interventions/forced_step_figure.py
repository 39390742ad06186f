"""A word under attention forced to every region in turn: the photo with the words that the model would say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from caption.analysis.interventions.selection import tokens_of
from caption.core.box import BoxLike
from caption.visualize.layout import Grid, Page, new_figure, write_heading
from caption.visualize.overlay import show_photo
from caption.visualize.styles import OverlayOptions, OverlayStyle
from caption.visualize.tiles import Tile, Tiles

if TYPE_CHECKING:
    from PIL.Image import Image

    from caption.results.caption import Caption

WIDTH = 3.0  # of a panel, in inches: letters can be read on a phone
LETTERS = 15.0  # points
SMALLEST = 0.02  # of all regions; smaller areas are not labelled
COLOURS = ("#e8590c", "#1c7ed6", "#2f9e44", "#ae3ec9", "#e0b000", "#0c8599", "#e64980", "#5f3dc4")
"""Of the caption's own word, then of the other words, by falling area."""
OPACITY = 0.4


def draw_forced_step(
    caption: Caption, step: int, words: list[list[str]], photo: Image, **options: Unpack[OverlayOptions]
) -> Figure:
    """Draw the map of a word beside a map of the words that the model would say in its place.

    On the left is the photo with the word's own attention, on the scale of the whole caption. On the right, each area
    has the likeliest word when all attention is on a region there. Small areas are left out.

    Args:
        caption: of the photo.
        step: of the word, or of the end token.
        words: (rows, cols) the likeliest word with all attention on each region.
        photo: as it is drawn.
        options: of the left panel, see `plot_caption`.
    """
    word = tokens_of(caption)[step]
    scale = OverlayStyle(**options).scale_of(caption.weights, signed=caption.properties.signed)
    own_map = caption.weights[step] if step < len(caption.words) else None
    tiles = [Tile(word, caption, own_map), Tile("and if it looked there?", caption)]
    grid = Grid(2, 2, (WIDTH, WIDTH * photo.height / photo.width))
    page = Page(grid, " ".join([*caption.words[:step], "…"]))
    fig = new_figure(page.size)
    write_heading(fig, page)
    Tiles(photo, tiles, scale=scale, **options).draw(fig, page.size, page, letters=LETTERS)
    map_axes, word_axes = fig.axes
    map_axes.title.set_color(COLOURS[0])
    _draw_words(show_photo(word_axes, photo, saturation=0.3), words, word, caption.box)
    return fig


def word_areas(words: list[list[str]]) -> list[tuple[str, np.ndarray]]:
    """The connected areas of equal words on a grid, largest first: the word, and its cells (n, 2) as row and column."""
    grid = np.array(words)
    remaining = {(row, col) for row, col in np.ndindex(*grid.shape)}
    areas: list[tuple[str, np.ndarray]] = []
    while remaining:
        edge = [min(remaining)]
        remaining.remove(edge[0])
        for row, col in edge:  # it grows in the loop
            near = {(row + 1, col), (row - 1, col), (row, col + 1), (row, col - 1)} & remaining
            reached = [place for place in sorted(near) if grid[place] == grid[row, col]]
            remaining.difference_update(reached)
            edge.extend(reached)
        areas.append((str(grid[edge[0]]), np.array(edge)))
    return sorted(areas, key=lambda area: -len(area[1]))


def _draw_words(ax: Axes, words: list[list[str]], own_word: str, box: BoxLike) -> None:
    rows, cols = len(words), len(words[0])
    width, height = (box[2] - box[0]) / cols, (box[3] - box[1]) / rows
    panel = ax.get_window_extent()
    renderer = FigureCanvasAgg(ax.get_figure(root=True)).get_renderer()
    limits, colours = (ax.get_xlim(), ax.get_ylim()), {own_word: COLOURS[0]}
    taken: list[Bbox] = []
    for word, cells in word_areas(words):
        if len(cells) < SMALLEST * rows * cols:
            break
        row, col = _innermost(cells)
        text = ax.text(
            box[0] + (col + 0.5) * width, box[1] + (row + 0.5) * height, word,
            fontsize=LETTERS, color="white", ha="center", va="center", parse_math=False,
            path_effects=[withStroke(linewidth=3, foreground="black")],
        )  # fmt: skip
        place = text.get_window_extent(renderer)
        is_inside = (
            panel.x0 <= place.x0 and place.x1 <= panel.x1 and panel.y0 <= place.y0 and place.y1 <= panel.y1
        )
        if not is_inside or any(place.overlaps(label) for label in taken):
            text.remove()
            continue
        taken.append(place)
        colour = colours.setdefault(word, COLOURS[min(len(colours), len(COLOURS) - 1)])
        inside = np.zeros((rows, cols))
        inside[tuple(cells.T)] = 1
        ax.imshow(
            inside[..., None] * to_rgba(colour, OPACITY),
            extent=(box[0], box[2], box[3], box[1]),
            interpolation="nearest",
        )
        _outline(ax, inside, box, (width, height))
    ax.set(xlim=limits[0], ylim=limits[1])


def _outline(ax: Axes, inside: np.ndarray, box: BoxLike, cell: tuple[float, float]) -> None:
    """Draw the border of cells (rows, cols), 1 inside."""
    around = np.pad(inside, 1)
    rows = [((col, row), (col + 1, row)) for row, col in np.argwhere(np.diff(around[:, 1:-1], axis=0))]
    cols = [((col, row), (col, row + 1)) for row, col in np.argwhere(np.diff(around[1:-1], axis=1))]
    lines = np.array(rows + cols) * cell + box[:2]
    ax.add_collection(LineCollection(list(lines), colors="white", linewidths=1.2, capstyle="projecting"))


def _innermost(cells: np.ndarray) -> tuple[float, float]:
    """The cell of an area with most of the area around it."""
    distances = np.abs(cells[:, None] - cells[None]).max(-1)  # (n, n)
    neighbours = (distances <= 1).sum(-1) + 0.1 * (distances <= 2).sum(-1)
    best = np.flatnonzero(neighbours == neighbours.max())
    nearest = best[np.square(cells[best] - cells.mean(0)).sum(-1).argmin()]
    return tuple(cells[nearest])
