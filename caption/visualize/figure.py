"""Figures of captions: a panel per word (Xu et al. 2015, figure 3) or per attention map, and captions compared."""

from __future__ import annotations

import io
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure, SubFigure
from PIL import ExifTags, Image

from caption.data.images import open_image
from caption.outputs import MARK
from caption.result import Caption, OutputError, map_label, open_output
from caption.visualize.colour_scale import OPACITY, draw_scale, scale_of
from caption.visualize.overlay import covers, overlay, show_photo

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from caption.result import Photo

# Inches.
PANEL = 1.9  # side of the square that has a panel's area
GAP = 0.08  # between panels
TITLE = 0.27  # above a panel: its word
FOOT = 0.17  # below a panel: its β
MARGIN = 0.12
LEGEND = 0.36  # the strip at the bottom that states the scale
NARROWEST = 4.6  # width of the whole, which the legend needs


class NotebookFigure(Figure):
    """A figure that a notebook shows as the last line of a cell, without pyplot."""

    def _repr_png_(self) -> bytes:
        return _render(self, "png", 100)


class Style(TypedDict, total=False):
    """How maps are drawn, see `overlay`."""

    smooth: bool
    cmap: str | Colormap | None
    opacity: float


class Panel(NamedTuple):
    """One small picture of a figure."""

    title: str
    caption: Caption
    step: int | None
    """The word whose weights lie over the photo; None for the photo alone."""


def plot_caption(
    caption: Caption,
    image: Photo,
    fig: Figure | None = None,
    *,
    map: str | None = None,
    index: int | tuple[int, ...] | None = None,
    columns: int | None = None,
    **style: Unpack[Style],
) -> Figure:
    """Draw a caption: the photo first, then the photo once per word, bright where the model looked.

    All words share one scale, stated by the bar at the bottom. It goes from 0 to the largest α of the caption; for
    signed weights it diverges from 0. Under each panel stand β, if the model has a gate, and the share of a sentinel,
    if there is one. A frame marks the cell that hard attention chose, a cross the point that was chosen.

    Args:
        caption: T words with their weights.
        image: the photo, or its path, at its own resolution and aspect ratio.
        fig: a figure to draw on, at its own size; by default a new one of a size that suits the photo.
        map, index: draw this one of `caption.maps` instead of `caption.weights` (see `Caption.with_map`).
        columns: panels in a row; by default as many as make the whole about 1.6 times as wide as high.
        style: `smooth`, `cmap` and `opacity` of `overlay`; the figure says that it is smooth.

    Returns:
        the figure; `save_figure` writes it.

    Raises:
        ValueError: there is no such map, columns is less than 1, or the opacity not between 0 and 1.
        caption.errors.ImageError: the photo cannot be opened.
    """
    photo = open_image(image)
    panels = _caption_panels("", caption, map, index)
    layout = layout_of(panels, photo.size, columns)
    return _draw_panels(fig or layout.new_figure(), panels, photo, layout, style)


def plot_maps(
    caption: Caption,
    image: Photo,
    map: str | None = None,
    word: int | None = None,
    *,
    columns: int | None = None,
    **style: Unpack[Style],
) -> Figure:
    """Draw the single maps of a caption, such as the heatmap of every head: one row per map, one column per word.

    All panels share one scale. Maps are labelled as `with_map` takes them: "heads[2]".

    Args:
        caption: with `maps`.
        image: the photo, or its path.
        map: the name of the maps to draw, such as "heads"; by default all.
        word: draw this word only, by its place in the caption: the photo, then one panel per map.
        columns: panels in a row, for a single word.
        style: see `plot_caption`.

    Raises:
        ValueError: there is no such map, or no map at all; there is no such word; or as for `plot_caption`.
        caption.errors.ImageError: the photo cannot be opened.
    """
    singles = caption.single_maps(map)
    if not singles:
        raise ValueError("this caption has no maps beside its weights: draw it with plot_caption")
    if word is None:
        panels = [panel for label, single in singles.items() for panel in _caption_panels(label, single)]
        columns = len(caption.words) + 1
    else:
        if not 0 <= word < len(caption.words):
            raise ValueError(f"word {word} is not among the {len(caption.words)} words: they count from 0")
        panels = [Panel(caption.words[word], caption, None)]
        panels += [Panel(label, single, word) for label, single in singles.items()]
    photo = open_image(image)
    layout = layout_of(panels, photo.size, columns)
    return _draw_panels(layout.new_figure(), panels, photo, layout, style)


def compare_captions(
    captions: Mapping[str, Caption],
    image: Photo,
    *,
    map: str | None = None,
    index: int | tuple[int, ...] | None = None,
    columns: int | None = None,
    **style: Unpack[Style],
) -> Figure:
    """Draw several captions of one photo, one above the other (Xu et al. 2015, figure 2), panels in equal columns.

    Each caption has a scale of its own, stated by its own bar. Mechanisms differ in how sharply they look: on a common
    scale a diffuse one would be dark throughout.

    Args:
        captions: at least one, by the name that stands over its photo.
        image: the photo that they all describe, or its path.
        map, index, columns, style: see `plot_caption`.

    Raises:
        ValueError: no captions, or as for `plot_caption`.
        caption.errors.ImageError: the photo cannot be opened.
    """
    if not captions:
        raise ValueError("there is nothing to compare: no captions")
    photo = open_image(image)
    rows = [_caption_panels(name, caption, map, index) for name, caption in captions.items()]
    columns = layout_of(max(rows, key=len), photo.size, columns).columns
    # A short caption leaves places empty rather than spreading over the width.
    layouts = [layout_of(panels, photo.size, columns)._replace(columns=columns) for panels in rows]
    heights = [layout.size[1] for layout in layouts]
    width = max(layout.size[0] for layout in layouts)
    fig = NotebookFigure(figsize=(width, sum(heights)), facecolor="white")
    parts = fig.subfigures(len(layouts), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, layout, panels in zip(parts, layouts, rows, strict=True):
        _draw_panels(part, panels, photo, layout, style)
        part.axes[0].title.set_fontweight("bold")
    return fig


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
    with open_output(path) as file:
        file.write(picture)


def _render(fig: Figure, extension: str, dpi: float) -> bytes:
    buffer = io.BytesIO()
    # Compressing photos as PNG takes longer than drawing them; level 2 is nearly as small, much sooner.
    quick: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if extension == "png" else {}
    fig.savefig(buffer, format=extension, dpi=dpi, **_marked(extension), **quick)
    return buffer.getvalue()


def _marked(extension: str) -> dict[str, Any]:
    """Arguments of `savefig` that write the mark of `caption.outputs`, for formats that have a place for it."""
    if extension == "png":
        return {"metadata": {"Software": MARK}}
    if extension in ("pdf", "svg", "eps", "ps"):
        return {"metadata": {"Creator": MARK}}
    if extension in ("jpg", "jpeg", "tif", "tiff", "webp", "avif"):
        exif = Image.Exif()
        exif[ExifTags.Base.Software] = MARK
        return {"pil_kwargs": {"exif": exif}}
    return {}


class Layout(NamedTuple):
    """Where panels go, in inches from the upper left corner."""

    panels: int
    columns: int
    panel: tuple[float, float]  # width, height of the photo in a panel
    foot: float

    @property
    def size(self) -> tuple[float, float]:
        width, height = self.panel
        rows = math.ceil(self.panels / self.columns)
        across = self.columns * (width + GAP) - GAP + 2 * MARGIN
        down = rows * (TITLE + height + self.foot + GAP) + LEGEND + MARGIN
        return max(across, NARROWEST), down

    def new_figure(self) -> Figure:
        return NotebookFigure(figsize=self.size, facecolor="white")

    def add_panel(self, fig: Figure | SubFigure, index: int) -> Axes:
        """Empty axes for a panel; panels are counted row by row."""
        width, height = self.panel
        row, column = divmod(index, self.columns)
        left, top = MARGIN + column * (width + GAP), row * (TITLE + height + self.foot + GAP) + TITLE
        return add_axes(fig, self.size, (left, top, width, height))

    def add_legend(self, fig: Figure | SubFigure) -> Axes:
        return add_axes(fig, self.size, (MARGIN + 0.1, self.size[1] - MARGIN - 0.16, 1.1, 0.12))


def add_axes(
    fig: Figure | SubFigure, size: Sequence[float], place: Sequence[float], anchor: str = "C"
) -> Axes:
    """Empty axes at (left, top, width, height), in inches from the upper left corner of a figure of this size."""
    (across, down), (left, top, width, height) = size, place
    bounds = (left / across, 1 - (top + height) / down, width / across, height / down)
    return fig.add_axes(bounds, anchor=anchor)


def layout_of(panels: Sequence[Panel], photo: tuple[int, int], columns: int | None = None) -> Layout:
    """Where panels go that show a photo of this (width, height) in pixels."""
    # Very long photos would leave slivers for panels; between 1:3 and 3:1 every panel has the same area.
    stretch = math.sqrt(min(max(photo[0] / photo[1], 1 / 3), 3))
    width, height = PANEL * stretch, PANEL / stretch
    foot = FOOT if any(map(_foot, panels)) else 0.0
    if columns is None:
        columns = _columns(len(panels), (width + GAP, height + TITLE + foot + GAP))
    if columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    return Layout(len(panels), min(columns, len(panels)), (width, height), foot)


def _columns(panels: int, panel: tuple[float, float]) -> int:
    """As many as make the whole about 1.6 times as wide as high, leaving few places empty."""

    def fault(columns: int) -> float:
        rows = math.ceil(panels / columns)
        stretch = columns * panel[0] / (rows * panel[1])
        return abs(math.log(stretch / 1.6)) + 1.5 * (rows * columns - panels) / panels

    return min(range(1, panels + 1), key=fault)


def _caption_panels(
    title: str, caption: Caption, name: str | None = None, index: int | tuple[int, ...] | None = None
) -> list[Panel]:
    """The photo under a title, then a panel per word; the weights of one map if it is named."""
    if name is not None:
        caption = caption.with_map(name, index)
        label = map_label(name, index)
        title = f"{title}, {label}" if title else label
    return [Panel(title, caption, None), *(Panel(w, caption, step) for step, w in enumerate(caption.words))]


def _draw_panels(
    fig: Figure | SubFigure, panels: Sequence[Panel], photo: Image.Image, layout: Layout, style: Style
) -> Any:
    """Draw panels and the legend on a figure or a part of one, and return it."""
    drawn = [panel for panel in panels if panel.step is not None]
    signed = any(panel.caption.properties.signed for panel in drawn)
    scale = scale_of(*(panel.caption.weights[panel.step] for panel in drawn), signed=signed)
    for number, panel in enumerate(panels):
        ax, caption, step = layout.add_panel(fig, number), panel.caption, panel.step
        if step is None:
            show_photo(ax, photo)
        else:
            overlay(
                ax, caption.weights[step], caption.box, photo, scale.high, vmin=scale.low, signed=signed,
                location=None if caption.locations is None else caption.locations[step],
                point=None if caption.points is None else caption.points[step], **style,
            )  # fmt: skip
        _write_title(ax, panel.title)
        if foot := _foot(panel):
            ax.text(0.5, -0.02, foot, transform=ax.transAxes, ha="center", va="top", fontsize=7)
    if drawn:
        # Even attention has one place on the scale only if all maps are distributions over equally many cells.
        sizes = {panel.caption.weights[0].size for panel in drawn}
        even = len(sizes) == 1 and all(panel.caption.properties.is_distribution for panel in drawn)
        regions = sizes.pop() if even else None
        cmap = style.get("cmap")
        ax = draw_scale(
            layout.add_legend(fig), scale, regions, cmap=cmap, opacity=style.get("opacity", OPACITY)
        )
        note = _legend(drawn[0].caption, photo.size, regions, style.get("smooth", False), cmap is not None)
        # About 20 letters of this size stand on an inch, and the bar needs 1.6 inches.
        note = textwrap.fill(note, int(20 * (layout.size[0] - 1.6)))
        ax.text(1.2, 0.5, note, transform=ax.transAxes, va="center", fontsize=7, linespacing=1.3)
    return fig


def _legend(
    caption: Caption, photo: tuple[int, int], regions: int | None, smooth: bool, own_colours: bool
) -> str:
    properties = caption.properties
    notes = ["α of a cell, one scale for all panels"]
    if regions is not None:
        notes.append(f"line: 1/{regions}, even attention")
    if not properties.sums_to_one:
        notes.append("the α of a word need not sum to 1")
    if properties.signed:
        notes.append("signed" if own_colours else "signed: orange above 0, blue below")
    if properties.sentinel:
        notes.append("sentinel: the share that no region got")
    if smooth:
        notes.append("interpolated between cells")
    if not covers(caption.box, photo):
        notes.append("hatched: not seen by the model")
    if caption.locations is not None:
        notes.append("frame: the cell looked at")
    if caption.points is not None:
        notes.append("cross: the point looked at")
    return "; ".join(notes)


def _write_title(ax: Axes, title: str) -> None:
    width = ax.get_position().width * ax.figure.bbox.width / ax.figure.dpi
    # A letter of a proportional font is about 0.6 em wide, an inch 72 points.
    room = 72 * width / 0.6
    longest = int(room / 6)
    title = title if len(title) <= longest else title[: longest - 1] + "…"
    ax.set_title(title, fontsize=min(11.0, room / max(len(title), 1)), pad=3, parse_math=False)


def _foot(panel: Panel) -> str:
    """What stands under a panel: the gate β and the share of the sentinel."""
    if panel.step is None:
        return ""
    gates, shares = panel.caption.gates, panel.caption.sentinel_shares
    parts = [] if gates is None else [f"β {gates[panel.step]:.2f}"]
    # Adding 0 turns −0.0 into 0.0.
    parts += [] if shares is None else [f"sentinel {round(float(shares[panel.step]), 2) + 0.0:.2f}"]
    return "  ".join(parts)
