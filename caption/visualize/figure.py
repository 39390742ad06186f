"""Figures of captions: a panel per word (Xu et al. 2015, figure 3) or per attention map, and captions compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from PIL import Image

from caption.data.decoding import open_image
from caption.result import Caption, map_label
from caption.visualize.figure_file import NotebookFigure
from caption.visualize.layout import Layout, layout_of
from caption.visualize.overlay import covers, draw_scale, overlay, show_photo
from caption.visualize.scale import Scale
from caption.visualize.styles import Look, LookOptions, style_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from caption.data.decoding import Photo


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
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw a caption: the sentence, the photo, then the photo once per word with where the model looked.

    All words share one scale, stated by the bar at the bottom. It goes from 0 to the largest α of the caption; for
    signed weights it diverges from 0. Under each panel stands the word's largest α in multiples of even attention, 1/L
    (of the mean weight, if weights are not distributions; as it is, if they are signed), then β, if the model has a
    gate, and the share of a sentinel, if there is one. A frame marks the cell that hard attention chose, a cross the
    point that was chosen.

    Args:
        caption: T words with their weights.
        image: the photo, or its path, at its own resolution and aspect ratio.
        fig: a figure to draw on, at its own size; by default a new one of a size that suits the photo.
        map, index: draw this one of `caption.maps` instead of `caption.weights` (see `Caption.with_map`).
        columns: panels in a row; by default as many as make the whole about 1.6 times as wide as high, and no wider
            than a page.
        look: `style` ("heat", "paper", "glow" or "cells"), `smooth`, `cmap` and `opacity`, see `styles.Look`.

    Returns:
        the figure; `save_figure` writes it.

    Raises:
        ValueError: there is no such map, columns is less than 1, or the opacity not between 0 and 1.
        caption.errors.ImageError: the photo cannot be opened.
    """
    photo = open_image(image)
    drawing = Drawing(_caption_panels("", caption, map, index), photo, look)
    layout = drawing.layout(columns, str(caption))
    return drawing.draw(fig or new_figure(layout.size), layout)


def plot_maps(
    caption: Caption,
    image: Photo,
    map: str | None = None,
    word: int | None = None,
    *,
    columns: int | None = None,
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw the single maps of a caption, such as the heatmap of every head: one row per map, one column per word.

    All panels share one scale. Maps are labelled as `with_map` takes them: "heads[2]".

    Args:
        caption: with `maps`.
        image: the photo, or its path.
        map: the name of the maps to draw, such as "heads"; by default all.
        word: draw this word only, by its place in the caption: the photo, then one panel per map.
        columns: panels in a row, for a single word.
        look: see `plot_caption`.

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
    drawing = Drawing(panels, open_image(image), look)
    layout = drawing.layout(columns, str(caption))
    return drawing.draw(new_figure(layout.size), layout)


def compare_captions(
    captions: Mapping[str, Caption],
    image: Photo,
    *,
    map: str | None = None,
    index: int | tuple[int, ...] | None = None,
    columns: int | None = None,
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw several captions of one photo, one above the other (Xu et al. 2015, figure 2), panels in equal columns.

    Each caption has a scale of its own, stated by its own bar: on a common one a diffuse mechanism would be dark.

    Args:
        captions: at least one, by the name that stands over its photo.
        image: the photo that they all describe, or its path.
        map, index, columns, look: see `plot_caption`.

    Raises:
        ValueError: no captions, or as for `plot_caption`.
        caption.errors.ImageError: the photo cannot be opened.
    """
    if not captions:
        raise ValueError("there is nothing to compare: no captions")
    photo = open_image(image)
    drawings = [
        Drawing(_caption_panels(name, caption, map, index), photo, look) for name, caption in captions.items()
    ]
    if columns is None:
        columns = max(drawings, key=lambda drawing: len(drawing.panels)).layout().columns
    # A short caption leaves places empty rather than spreading over the width.
    layouts = [
        drawing.layout(columns, str(caption))._replace(columns=columns)
        for drawing, caption in zip(drawings, captions.values(), strict=True)
    ]
    heights = [layout.size[1] for layout in layouts]
    fig = new_figure((max(layout.size[0] for layout in layouts), sum(heights)))
    parts = fig.subfigures(len(layouts), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, layout, drawing in zip(parts, layouts, drawings, strict=True):
        drawing.draw(part, layout)
        part.axes[0].title.set_fontweight("bold")
    return fig


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty white figure of this (width, height) in inches."""
    return NotebookFigure(figsize=size, facecolor="white")


def _caption_panels(
    title: str, caption: Caption, name: str | None = None, index: int | tuple[int, ...] | None = None
) -> list[Panel]:
    """The photo under a title, then a panel per word; the weights of one map if it is named."""
    if name is not None:
        caption = caption.with_map(name, index)
        label = map_label(name, index)
        title = f"{title}, {label}" if title else label
    return [Panel(title, caption, None), *(Panel(w, caption, step) for step, w in enumerate(caption.words))]


class Drawing:
    """Panels that share a photo, a scale and a look."""

    def __init__(self, panels: Sequence[Panel], photo: Image.Image, options: LookOptions) -> None:
        self.panels, self.photo, self.options = panels, photo, options
        self.look = Look(**options)
        self.drawn = [panel for panel in panels if panel.step is not None]
        signed = any(panel.caption.properties.signed for panel in self.drawn)
        weights = (panel.caption.weights[panel.step] for panel in self.drawn)
        self.scale = self.look.scale_of(*weights, signed=signed)
        # Even attention has one place on the scale only if all maps are distributions over equally many cells.
        sizes = {panel.caption.weights[0].size for panel in self.drawn}
        even = len(sizes) == 1 and all(panel.caption.properties.is_distribution for panel in self.drawn)
        self.regions = sizes.pop() if even else None

    def layout(self, columns: int | None = None, heading: str = "") -> Layout:
        """The places of the panels.

        Raises:
            ValueError: columns is less than 1.
        """
        layout = layout_of(len(self.panels), self.photo.size, bool(self.drawn), columns)
        return layout._replace(heading=heading, legend="; ".join(self._legend()) if self.drawn else "")

    def draw(self, fig: Figure | SubFigure, layout: Layout) -> Any:
        """Draw heading, panels and legend on a figure or a part of one, and return it."""
        layout.write_heading(fig)
        for number, panel in enumerate(self.panels):
            ax, caption, step = layout.add_panel(fig, number), panel.caption, panel.step
            if step is None:
                show_photo(ax, self.photo)
            else:
                overlay(
                    ax, caption.weights[step], caption.box, self.photo, self.scale, seen=caption.seen,
                    location=None if caption.locations is None else caption.locations[step],
                    point=None if caption.points is None else caption.points[step], **self.options,
                )  # fmt: skip
                foot = "   ".join(_foot(caption, step, self.scale))
                ax.text(0.5, -0.02, foot, transform=ax.transAxes, ha="center", va="top", fontsize=8)
            _write_title(ax, panel.title)
        if self.drawn:
            draw_scale(layout.add_legend(fig), self.scale, self.regions, **self.options)
        return fig

    def _legend(self) -> list[str]:
        caption = self.drawn[0].caption
        properties = caption.properties
        style = style_of(self.look.style)
        plain = properties.signed or (self.look.cmap is not None and self.look.style != "heat")
        even = "even attention" if properties.is_distribution else "the mean weight"
        colours = "colour: α" if plain else style.legend.format(even=even)
        unit = "even attention" if properties.is_distribution else "the mean of all words"
        notes = {
            f"{colours}, one scale for all panels": True,
            f"line: 1/{self.regions}, even attention": self.regions is not None,
            f"×: the peak of a word, in multiples of {unit}": not properties.signed,
            "β: how much the word drew on the image, from 0, not at all, to 1, in full": caption.gates
            is not None,
            "the α of a word need not sum to 1": not properties.sums_to_one,
            "signed" if self.look.cmap else "signed: orange above 0, blue below": properties.signed,
            "sentinel: the share that no region got": properties.sentinel,
            "interpolated between cells": self.look.is_smooth and not self.look.is_blurred,
            "hatched: not seen by the model": not covers(caption.seen or caption.box, self.photo.size),
            "frame: the cell looked at": caption.locations is not None,
            "cross: the point looked at": caption.points is not None,
        }
        return [note for note, applies in notes.items() if applies]


def _write_title(ax: Axes, title: str) -> None:
    width = ax.get_position().width * ax.figure.bbox.width / ax.figure.dpi
    # A letter of a proportional font is about 0.6 em wide, an inch 72 points.
    room = 72 * width / 0.6
    longest = int(room / 6)
    title = title if len(title) <= longest else title[: longest - 1] + "…"
    ax.set_title(title, fontsize=min(11.0, room / max(len(title), 1)), pad=3, parse_math=False)


def _foot(caption: Caption, step: int, scale: Scale) -> list[str]:
    """What stands under a panel: the peak, the gate β and the share of the sentinel."""
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
        return f"α {peak:.2g}".replace("-", "−")
    if caption.properties.is_distribution:
        return f"{_times(float(weights.max()) * weights.size)} even"
    return f"{_times(float(weights.max()) / scale.mean)} mean" if scale.mean > 0 else "α 0"


def _times(multiple: float) -> str:
    return f"{multiple:.1f}×" if multiple < 99.5 else f"{multiple:.0f}×"
