"""The paper's figure: the photo, then a panel per word with its attention (Xu et al. 2015, figure 3)."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure, SubFigure
from PIL import Image

from caption.data.images import open_image
from caption.result import OutputError
from caption.visualize.light import OPACITY, Scale, light_ramp, scale_of
from caption.visualize.overlay import covers, overlay, show_photo
from caption.visualize.photo import Photo

if TYPE_CHECKING:
    from caption.result import Caption

# Inches.
PANEL = 1.9  # side of the square that has a panel's area
GAP = 0.08  # between panels
TITLE = 0.27  # above a panel: its word
FOOT = 0.17  # below a panel: its β
MARGIN = 0.12
LEGEND = 0.36  # the strip at the bottom that states the scale


class NotebookFigure(Figure):
    """A figure that a notebook shows as the last line of a cell, although pyplot has never heard of it."""

    def _repr_png_(self) -> bytes:
        return _render(self, "png", 100)


def plot_caption(
    caption: Caption,
    image: Photo,
    fig: Figure | None = None,
    *,
    columns: int | None = None,
    smooth: bool = False,
    cmap: str | Colormap | None = None,
    opacity: float = OPACITY,
) -> Figure:
    """Draw a caption: the photo first, then the photo once per word, bright where the model looked.

    All words share one scale, from 0 to the largest α of the caption, stated by the bar at the bottom. β
    stands under each panel where the model has a gate; a frame marks the cell that hard attention chose.

    Args:
        caption: T words with their weights.
        image: the photo, or its path, at its own resolution and aspect ratio.
        fig: a figure to draw on, at its own size; by default a new one of a size that suits the photo.
        columns: panels in a row; by default as many as make the whole about 1.6 times as wide as high.
        smooth: interpolate between cells (see `overlay`); the figure says so.
        cmap: a Matplotlib colour map in place of dark and light.
        opacity: how much of the photo is hidden where α is lowest, 0 to 1.

    Returns:
        the figure; `save_figure` writes it.

    Raises:
        ValueError: columns is less than 1, or the opacity not between 0 and 1.
        caption.errors.ImageError: the photo cannot be opened.
    """
    photo = open_image(image)
    layout = layout_of(caption, photo.size, columns)
    if fig is None:
        fig = NotebookFigure(figsize=layout.size, facecolor="white")
    draw_caption(fig, caption, photo, layout, smooth=smooth, cmap=cmap, opacity=opacity)
    return fig


def draw_caption(
    fig: Figure | SubFigure,
    caption: Caption,
    photo: Image.Image,
    layout: Layout,
    *,
    smooth: bool = False,
    cmap: str | Colormap | None = None,
    opacity: float = OPACITY,
) -> None:
    """What `plot_caption` draws, on a figure or a part of one, by a given layout."""
    scale = scale_of(caption.weights)
    first, *panels = layout.add_panels(fig)
    show_photo(first, photo)
    for step, (ax, word) in enumerate(zip(panels, caption.words, strict=True)):
        location = None if caption.locations is None else caption.locations[step]
        overlay(
            ax, caption.weights[step], caption.box, photo, scale.high, vmin=scale.low,
            smooth=smooth, cmap=cmap, opacity=opacity, location=location,
        )  # fmt: skip
        _write_word(ax, word)
        if caption.gates is not None:
            _write_gate(ax, caption.gates[step])
    if panels:
        ax = draw_scale(layout.add_legend(fig), scale, caption.weights[0].size, cmap=cmap, opacity=opacity)
        note = _legend(caption, photo.size, smooth)
        ax.text(1.2, 0.5, note, transform=ax.transAxes, va="center", fontsize=7, linespacing=1.3)


def draw_scale(
    ax: Axes,
    scale: Scale,
    regions: int | None = None,
    *,
    cmap: str | Colormap | None = None,
    opacity: float = OPACITY,
) -> Axes:
    """A bar that states which α is dark and which bright, if asked with a line at 1/L, even attention.

    Args:
        ax: a flat strip; drawn on and returned.
        scale: α of its two ends.
        regions: L, the number of cells, for the line.
        cmap, opacity: as given to `overlay`.
    """
    ramp = np.linspace(scale.low, scale.high, 1024)[None]
    # On light grey, so that both what the ramp takes from a photo and what it adds can be seen.
    ax.set_facecolor("0.75")
    layer, alpha = (light_ramp(opacity), None) if cmap is None else (cmap, opacity)
    ax.imshow(ramp, cmap=layer, alpha=alpha, aspect="auto", extent=(scale.low, scale.high, 0, 1))
    if regions is not None and scale.low < 1 / regions < scale.high:
        ax.axvline(1 / regions, color="white", linewidth=2)
        ax.axvline(1 / regions, color="black", linewidth=0.8)
    ax.set(xticks=[scale.low, scale.high], yticks=[])
    ax.set_xticklabels([f"{scale.low:.2g}", f"{scale.high:.2g}"])
    ax.tick_params(length=2, labelsize=7, pad=1)
    return ax


def save_figure(fig: Figure, path: str | os.PathLike[str], dpi: float = 150) -> None:
    """Write a figure; the extension of the name chooses the format.

    Raises:
        OutputError: Matplotlib knows no such extension, or the file cannot be written.
    """
    known = fig.canvas.get_supported_filetypes()
    extension = Path(path).suffix.lstrip(".").lower()
    if extension not in known:
        raise OutputError(f"cannot write {path}: a figure's name ends in one of {', '.join(sorted(known))}")
    picture = _render(fig, extension, dpi)
    try:
        Path(path).write_bytes(picture)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _render(fig: Figure, extension: str, dpi: float) -> bytes:
    buffer = io.BytesIO()
    # Compressing photos as PNG takes longer than drawing them; level 2 is nearly as small, much sooner.
    quick: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if extension == "png" else {}
    fig.savefig(buffer, format=extension, dpi=dpi, **quick)
    return buffer.getvalue()


class Layout(NamedTuple):
    """Where panels go, in inches from the upper left corner."""

    panels: int
    columns: int
    panel: tuple[float, float]  # width, height of the photo in a panel
    foot: float

    @property
    def rows(self) -> int:
        return math.ceil(self.panels / self.columns)

    @property
    def size(self) -> tuple[float, float]:
        width, height = self.panel
        across = self.columns * (width + GAP) - GAP + 2 * MARGIN
        down = self.rows * (TITLE + height + self.foot + GAP) + LEGEND + MARGIN
        return max(across, 4.6), down  # the legend needs 4.6 inches

    def add_panels(self, fig: Figure | SubFigure) -> list[Axes]:
        """One empty axes per panel, row by row."""
        width, height = self.panel
        axes = []
        for index in range(self.panels):
            row, column = divmod(index, self.columns)
            left = MARGIN + column * (width + GAP)
            top = row * (TITLE + height + self.foot + GAP) + TITLE
            axes.append(self._add_axes(fig, left, top, width, height))
        return axes

    def add_legend(self, fig: Figure | SubFigure) -> Axes:
        return self._add_axes(fig, MARGIN + 0.1, self.size[1] - MARGIN - 0.16, 1.1, 0.12)

    def _add_axes(
        self, fig: Figure | SubFigure, left: float, top: float, width: float, height: float
    ) -> Axes:
        across, down = self.size
        return fig.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def layout_of(caption: Caption, photo: tuple[int, int], columns: int | None = None) -> Layout:
    """Where the panels of a caption go over a photo of this (width, height) in pixels."""
    # Very long photos would leave slivers for panels; between 1:3 and 3:1 every panel has the same area.
    stretch = math.sqrt(min(max(photo[0] / photo[1], 1 / 3), 3))
    width, height = PANEL * stretch, PANEL / stretch
    foot = 0.0 if caption.gates is None else FOOT
    panels = len(caption.words) + 1
    if columns is None:
        columns = _columns(panels, (width + GAP, height + TITLE + foot + GAP))
    if columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    return Layout(panels, min(columns, panels), (width, height), foot)


def _columns(panels: int, panel: tuple[float, float]) -> int:
    """As many as make the whole about 1.6 times as wide as high, leaving few places empty."""

    def fault(columns: int) -> float:
        rows = math.ceil(panels / columns)
        stretch = columns * panel[0] / (rows * panel[1])
        return abs(math.log(stretch / 1.6)) + 1.5 * (rows * columns - panels) / panels

    return min(range(1, panels + 1), key=fault)


def _legend(caption: Caption, photo: tuple[int, int], smooth: bool) -> str:
    even = f"1/{caption.weights[0].size}"
    lines = [f"α of a cell, one scale for all words; line: {even}, even attention"]
    if smooth:
        lines.append("interpolated between cells")
    if not covers(caption.box, photo):
        lines.append("hatched: not seen by the model")
    if caption.locations is not None:
        lines.append("frame: the cell looked at")
    return lines[0] + "\n" * (len(lines) > 1) + "; ".join(lines[1:])


def _write_word(ax: Axes, word: str) -> None:
    width = ax.get_position().width * ax.figure.bbox.width / ax.figure.dpi
    # A letter of a proportional font is about 0.6 em wide, an inch 72 points.
    room = 72 * width / 0.6
    longest = int(room / 6)
    word = word if len(word) <= longest else word[: longest - 1] + "…"
    size = min(11.0, room / max(len(word), 1))
    ax.set_title(word, fontsize=size, pad=3, parse_math=False)


def _write_gate(ax: Axes, gate: float) -> None:
    ax.text(0.5, -0.02, f"β {gate:.2f}", transform=ax.transAxes, ha="center", va="top", fontsize=7)
