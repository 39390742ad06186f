"""Figures of captions: a panel per word (Xu et al. 2015, figure 3) or per attention map, and captions compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from PIL import Image

from caption.data.boxes import Boxes
from caption.data.decoding import open_image
from caption.lens_reading import LEAST_SEEN
from caption.result import Caption, map_label
from caption.text.mentions import Mention, find_mentions
from caption.visualize.figure_file import DPI, NotebookFigure
from caption.visualize.layout import Layout, layout_of
from caption.visualize.overlay import covers, draw_boxes, draw_scale, overlay, show_photo
from caption.visualize.scale import Scale
from caption.visualize.styles import Look, LookOptions, style_of
from caption.visualize.words import Words, steps_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from caption.data.decoding import Photo

WORD_WIDTHS = (640, 1920)
"""Pixels that the picture of a single word has at least, and at most."""


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
    words: Words | None = None,
    map: str | None = None,
    index: int | tuple[int, ...] | None = None,
    rows: int | None = None,
    columns: int | None = None,
    title: bool = True,
    legend: bool = True,
    boxes: Boxes | None = None,
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw a caption: the sentence, the photo, then the photo once per word with where the model looked.

    All words share one scale, stated by the bar at the bottom. It goes from 0 to the largest α of the caption, also of
    words that are not drawn; for signed weights it diverges from 0. Under each panel stands the word's largest α in
    multiples of even attention, 1/L (of the mean weight, if weights are not distributions; as it is, if they are
    signed), then β, if the model has a gate, and the share of a sentinel, if there is one; below, what a lens sees.
    A frame marks the cell that
    hard attention chose, a cross the point that was chosen.

    Args:
        caption: T words with their weights.
        image: the photo, or its path, at its own resolution and aspect ratio.
        fig: a figure to draw on, at its own size; by default a new one of a size that suits the photo.
        words: draw these alone: words of the caption, or their places in it, counted from 0; or a number of words, for
            those that name things (`words.steps_of`).
        map, index: draw this one of `caption.maps` instead of `caption.weights` (see `Caption.with_map`).
        rows, columns: of panels; by default the whole is about 1.6 times as wide as high, and no wider than a page.
        title: write the sentence above the panels.
        legend: state the scale below the panels, and the numbers of each word below its panel.
        boxes: of objects by name, in the photo's pixels: drawn on the photo, and on the word that names the object.
        look: `style` ("heat", "paper", "glow" or "cells"), `smooth`, `cmap` and `opacity`, see `styles.Look`.

    Returns:
        the figure; `save_figure` writes it.

    Raises:
        ValueError: there is no such map or word; rows or columns is less than 1, or both are given; or the opacity is
            not between 0 and 1.
        caption.errors.ImageError: the photo cannot be opened.
    """
    panels = caption_panels("", caption, map, index, words)
    drawing = Drawing(panels, open_image(image), look, legend, boxes, panels[0].caption)
    layout = drawing.layout(columns, str(caption) if title else "", rows)
    return drawing.draw(fig or new_figure(layout.size), layout)


def plot_word(
    caption: Caption,
    image: Photo,
    word: str | int,
    *,
    map: str | None = None,
    index: int | tuple[int, ...] | None = None,
    boxes: Boxes | None = None,
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw the map of one word over the photo and nothing else, on the scale that all words of the caption share.

    Args:
        caption, image, map, index, boxes, look: see `plot_caption`.
        word: of the caption, the first if it stands there more than once; or its place, counted from 0.

    Returns:
        a figure that `save_figure` writes with as many pixels as the photo has, within WORD_WIDTHS.

    Raises:
        ValueError: there is no such map or word, or the opacity is not between 0 and 1.
        caption.errors.ImageError: the photo cannot be opened.
    """
    photo = open_image(image)
    step = steps_of(caption, [word])[0]
    (panel,) = caption_panels("", caption, map, index, [step])[1:]
    smallest, largest = WORD_WIDTHS
    width = min(max(photo.width, smallest), largest)
    fig = new_figure((width / DPI, width / DPI * photo.height / photo.width))
    ax = fig.add_axes((0, 0, 1, 1))
    Drawing([panel], photo, look, boxes=boxes, scaled=panel.caption).draw_panel(ax, panel)
    # Rounded to whole pixels, the figure has not quite the photo's aspect ratio, and a white edge would be left.
    ax.set(title="", aspect="auto")
    return fig


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
        panels = [panel for label, single in singles.items() for panel in caption_panels(label, single)]
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
    words: Words | None = None,
    map: str | None = None,
    index: int | tuple[int, ...] | None = None,
    columns: int | None = None,
    boxes: Boxes | None = None,
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw several captions of one photo, one above the other (Xu et al. 2015, figure 2), panels in equal columns.

    Each caption has a scale of its own, stated by its own bar: on a common one a diffuse mechanism would be dark.

    Args:
        captions: at least one, by the name that stands over its photo.
        image: the photo that they all describe, or its path.
        words, map, index, columns, boxes, look: see `plot_caption`. Of a caption that has none of the words, the photo
            alone is drawn.

    Raises:
        ValueError: no captions, or as for `plot_caption`.
        caption.errors.ImageError: the photo cannot be opened.
    """
    if not captions:
        raise ValueError("there is nothing to compare: no captions")
    photo = open_image(image)
    panels = [
        caption_panels(name, caption, map, index, words, strict=False) for name, caption in captions.items()
    ]
    drawings = [Drawing(row, photo, look, boxes=boxes, scaled=row[0].caption) for row in panels]
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


def caption_panels(
    title: str,
    caption: Caption,
    name: str | None = None,
    index: int | tuple[int, ...] | None = None,
    words: Words | None = None,
    strict: bool = True,
) -> list[Panel]:
    """The photo under a title, then a panel per word; the weights of one map if it is named."""
    steps = steps_of(caption, words, strict)
    if name is not None:
        caption = caption.with_map(name, index)
        label = map_label(name, index)
        title = f"{title}, {label}" if title else label
    return [Panel(title, caption, None), *(Panel(caption.words[step], caption, step) for step in steps)]


class Drawing:
    """Panels that share a photo, a scale and a look; the numbers and the scale stand below, if wanted.

    The scale is that of all words of `scaled`, so that a word looks the same beside others and alone; by default, of
    the words that are drawn.
    """

    def __init__(
        self,
        panels: Sequence[Panel],
        photo: Image.Image,
        options: LookOptions,
        legend: bool = True,
        boxes: Boxes | None = None,
        scaled: Caption | None = None,
    ) -> None:
        self.panels, self.photo, self.options, self.boxes = panels, photo, options, boxes or {}
        self.look = Look(**options)
        self.drawn = [panel for panel in panels if panel.step is not None]
        self.has_legend = legend and bool(self.drawn)
        signed = any(panel.caption.properties.signed for panel in self.drawn)
        drawn = [panel.caption.weights[panel.step] for panel in self.drawn]
        self.scale = self.look.scale_of(*(drawn if scaled is None else [scaled.weights]), signed=signed)
        # Even attention has one place on the scale only if all maps are distributions over equally many cells.
        sizes = {panel.caption.weights[0].size for panel in self.drawn}
        even = len(sizes) == 1 and all(panel.caption.properties.is_distribution for panel in self.drawn)
        self.regions = sizes.pop() if even else None

    def layout(self, columns: int | None = None, heading: str = "", rows: int | None = None) -> Layout:
        """The places of the panels.

        Raises:
            ValueError: columns or rows is less than 1, or both are given.
        """
        feet = self.has_legend + any(panel.caption.lens is not None for panel in self.drawn)
        layout = layout_of(len(self.panels), self.photo.size, feet, columns, rows)
        return layout._replace(heading=heading, legend=tuple(self._legend()) if self.has_legend else ())

    def draw(self, fig: Figure | SubFigure, layout: Layout) -> Any:
        """Draw heading, panels and legend on a figure or a part of one, and return it."""
        layout.write_heading(fig)
        for number, panel in enumerate(self.panels):
            ax = layout.add_panel(fig, number)
            self.draw_panel(ax, panel)
            if panel.step is not None:
                feet = ["   ".join(_foot(panel.caption, panel.step, self.scale))] * self.has_legend
                feet += seen_lines(panel.caption, panel.step)
                if feet:
                    foot = "\n".join(feet)
                    ax.text(0.5, -0.02, foot, transform=ax.transAxes, ha="center", va="top", fontsize=8)
        if self.has_legend:
            draw_scale(layout.add_legend(fig), self.scale, self.regions, **self.options)
        return fig

    def draw_panel(self, ax: Axes, panel: Panel) -> None:
        """Draw the photo, or the map of a word over it, under a title, with the boxes of the objects that are meant."""
        caption, step = panel.caption, panel.step
        if step is None:
            draw_boxes(show_photo(ax, self.photo), chain.from_iterable(self.boxes.values()))
        else:
            named = (mention.boxes for mention in self._mentions(caption) if mention.word == step)
            overlay(
                ax, caption.weights[step], caption.box, self.photo, self.scale, seen=caption.seen,
                location=None if caption.locations is None else caption.locations[step],
                point=None if caption.points is None else caption.points[step],
                boxes=chain.from_iterable(named), **self.options,
            )  # fmt: skip
        _write_title(ax, panel.title)

    def _mentions(self, caption: Caption) -> list[Mention]:
        return find_mentions(caption.words, self.boxes) if self.boxes else []

    def _legend(self) -> list[str]:
        caption = self.drawn[0].caption
        properties = caption.properties
        style = style_of(self.look.style)
        own_colours = self.look.cmap is not None and self.look.style != "heat"
        even = "even attention" if properties.is_distribution else "the mean weight"
        line = "" if self.regions is None else f" (1/{self.regions})"
        if properties.signed:
            colours = "colour: α" if self.look.cmap else "orange: α above 0, blue: below"
        elif own_colours or style.level != "even":
            what = "colour" if own_colours else style.legend
            blurred = ", blurred" * self.look.is_blurred
            colours = f"{what}: α{blurred}" + (f"; line: {even}{line}" if line else "")
        else:
            colours = f"{style.legend}: above {even}{line}"
        notes = {
            colours: True,
            "hatched: unseen": not covers(caption.seen or caption.box, self.photo.size),
            "frame: cell read": caption.locations is not None,
            "cross: point read": caption.points is not None,
            "β: use of the image": caption.gates is not None,
            "sentinel: share of no region": properties.sentinel,
            "Σα need not be 1": not properties.sums_to_one,
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


def seen_lines(caption: Caption, step: int) -> list[str]:
    """What the lens sees at a word, if it is likely enough: "sees: saxophone 0.9"."""
    seen = None if caption.lens is None else caption.lens.seen(step, LEAST_SEEN)
    return [] if seen is None else [f"sees: {seen}"]


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
