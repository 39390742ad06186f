"""A word under attention forced to every region in turn: the photo with the words that the model would say."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from caption.box import BoxLike
from caption.data.decoding import open_image
from caption.visualize.layout import GAP, MARGIN, add_axes, new_figure
from caption.visualize.overlay import overlay, photos_of, show_photo
from caption.visualize.styles import OverlayOptions, OverlayStyle

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from caption.analysis.interventions.forced_step import ForcedStep
    from caption.data.decoding import Photo

WIDTH = 6.4  # inches, as for an animation: letters can be read on a phone
LETTERS = 15.0  # points
LINE = 0.29  # inches
CHARACTERS = 50  # in a line of the heading
SMALLEST = 0.02  # of all regions: an area that is not named is smaller
COLOURS = ("#e8590c", "#1c7ed6", "#2f9e44", "#ae3ec9", "#e0b000", "#0c8599", "#e64980", "#5f3dc4")
"""Of the caption's own word, then of the others, that of the largest area first."""
OPACITY = 0.4


def plot_forced_step(
    result: ForcedStep, image: Photo | None = None, **options: Unpack[OverlayOptions]
) -> Figure:
    """Draw the map of the word beside a map of the words that the model would say in its place.

    On the left is the photo with the word's own attention, on the scale of the whole caption. On the right, each area
    bears the likeliest word when all attention is on a region there. Small areas are left out.

    Args:
        result: from `force_everywhere`, of a word of the caption or of its end token.
        image: the photo; by default the one that the caption carries.
        options: of the left panel, see `plot_caption`.

    Raises:
        ValueError: there is no photo.
        caption.errors.ImageError: the photo cannot be opened.
    """
    caption = result.caption
    photo = open_image(photos_of([caption], None if image is None else [image])[0])
    heading = textwrap.wrap(" ".join([*caption.words[: result.step], "…"]), CHARACTERS)
    panel = (WIDTH - 2 * MARGIN - GAP) / 2
    height = panel * photo.height / photo.width
    top = MARGIN + LINE * (len(heading) + 1)
    size = WIDTH, top + height + MARGIN
    fig = new_figure(size)
    for number, line in enumerate(heading):
        _write(fig, size, MARGIN, MARGIN + LINE * number, line)
    own, elsewhere = (
        add_axes(fig, size, (left, top, panel, height)) for left in (MARGIN, MARGIN + panel + GAP)
    )
    if result.step < len(caption.words):
        scale = OverlayStyle(**options).scale_of(caption.weights, signed=caption.properties.signed)
        overlay(own, caption.weights[result.step], caption.box, photo, scale, seen=caption.seen, **options)
    else:
        show_photo(own, photo)
    _write(fig, size, MARGIN, top - LINE, result.word, color=COLOURS[0])
    _write(fig, size, MARGIN + panel + GAP, top - LINE, "and if it looked there?")
    show_photo(elsewhere, photo, saturation=0.3)
    _draw_words(elsewhere, result)
    return fig


def areas(words: list[list[str]]) -> list[tuple[str, np.ndarray]]:
    """The connected areas of equal words on a grid, largest first: the word, and its cells (n, 2) as row and column."""
    grid = np.array(words)
    left = {(row, col) for row, col in np.ndindex(*grid.shape)}
    found: list[tuple[str, np.ndarray]] = []
    while left:
        edge = [min(left)]
        left.remove(edge[0])
        for row, col in edge:  # which grows meanwhile
            near = {(row + 1, col), (row - 1, col), (row, col + 1), (row, col - 1)} & left
            reached = [place for place in sorted(near) if grid[place] == grid[row, col]]
            left.difference_update(reached)
            edge.extend(reached)
        found.append((str(grid[edge[0]]), np.array(edge)))
    return sorted(found, key=lambda area: -len(area[1]))


def _draw_words(ax: Axes, result: ForcedStep) -> None:
    box, (rows, cols) = result.caption.box, result.probability.shape
    width, height = (box[2] - box[0]) / cols, (box[3] - box[1]) / rows
    panel = ax.get_window_extent()
    renderer = FigureCanvasAgg(ax.get_figure(root=True)).get_renderer()
    limits, colours = (ax.get_xlim(), ax.get_ylim()), {result.word: COLOURS[0]}
    taken: list[Bbox] = []
    for word, cells in areas(result.words):
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
        if not is_inside or any(place.overlaps(other) for other in taken):
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


def _write(
    fig: Figure, size: tuple[float, float], left: float, top: float, text: str, color: str = "0.1"
) -> None:
    across, down = left / size[0], 1 - (top + 0.75 * LINE) / size[1]
    fig.text(across, down, text, fontsize=LETTERS, va="baseline", color=color, parse_math=False)
