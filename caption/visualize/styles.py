"""The styles: how a weight becomes a colour over a photo. All panels of a figure, or words of a page, share one scale.

With low, mean and high from the `Scale`, and α a weight, two levels in [0, 1] are drawn from:

    l = (α − low) / (high − low)                 how much of the highest weight it is
    e = (α − mean) / (high − mean), at least 0   how far it is above even attention

    style   photo      where attention is                         smooth
    heat    paler      colours of "inferno", opacity · v          yes      v = ease(e)   the default
    paper   in colour  white, as in Xu et al. 2015, figure 3      blurred  v = l
    glow    in colour  the photo itself, dark elsewhere           yes      v = ease(e)
    cells   in colour  white; every cell of the grid is visible   no       v = √l

with ease(e) = (1 + k) e / (e + k), k = 1/4, so that a little more than even attention can be seen, too. A pixel p in
[0, 1] under paper, glow and cells becomes

    p · (1 − opacity · (1 − v) − tint · v) + colour · tint · v

dark where v is small, and tinted where v is large. The root makes up for screens, whose light is roughly the square of
a pixel's value. Cells is the style to read numbers from: its grey rises with α on any photo, also in print. Signed
weights are orange above 0 and blue below in every style, with v = √(|α| / high). The page draws by the same tables.

Paper follows the authors' notebook: maps are blurred (`gaussian.enlarged`), and cover the photo with an opacity of 0.8,
from black, the lowest, to white, the highest. In the notebook each word's map has its own black and white, so that
an even map looks as sharp as a peaked one; here the words of a caption share them. Low, mean and high are those of
the blurred maps.

A paler photo keeps a part of its colours, `saturation`. In grey, an object that differs from its background in hue
alone would disappear; in full colour, it would be taken for heat. Opacity and saturation leave every object of Shapes
visible where α is 0: its colour differs from its surroundings by 10 units of CIELAB or more
(`tests/visualize/test_visible_objects.py`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict, get_args

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap

from caption.visualize.gaussian import enlarged
from caption.visualize.scale import Scale, scale_of

StyleName = Literal["heat", "paper", "glow", "cells"]
STYLE_NAMES: tuple[StyleName, ...] = get_args(StyleName)
DEFAULT: StyleName = "heat"

STEPS = 1024  # of a colour map: v is steep at its start
EASE = 0.25  # k
EQUAL = 1e-6  # of the highest weight; a span below it is rounding
SIGNED_TINT = 0.6  # tint of orange and blue, which are darker than white
ABOVE, BELOW = (1.0, 0.58, 0.12), (0.25, 0.55, 1.0)  # RGB of positive and negative weights
HEAT = ("inferno", 0.4, 0.93)  # without its black end, which has no colour on a grey photo, and its white end

Array = np.ndarray


class Style(NamedTuple):
    """A preset, see the formulas above."""

    saturation: float
    """The part of the photo's colours that is kept: 0 is grey, 1 the photo as it is."""
    smooth: bool
    """Maps are interpolated between the centres of the cells, or blurred."""
    blurred: bool
    """Smooth maps are blurred."""
    opacity: float
    """The default; 0 leaves the photo as it is."""
    level: Literal["even", "root", "linear"]
    """v = ease(e), √l or l."""
    tint: float
    colour: tuple[float, float, float]
    """RGB of the tint."""
    legend: str
    """A word for what shows attention."""


WHITE = (1.0, 1.0, 1.0)


def ease(excess: Array) -> Array:
    """v from e: steep at its start, but without an edge."""
    return (1 + EASE) * excess / (excess + EASE)


STYLES: dict[StyleName, Style] = {
    "heat": Style(0.35, True, False, 0.85, "even", 0.0, WHITE, "colour"),
    "paper": Style(1.0, True, True, 0.8, "linear", 0.8, WHITE, "white"),
    "glow": Style(1.0, True, False, 0.7, "even", 0.12, (1.0, 0.85, 0.5), "light"),
    "cells": Style(1.0, False, False, 0.7, "root", 0.25, WHITE, "light"),
}


def style_of(name: str) -> Style:
    """The style of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in STYLES:
        raise ValueError(f"there is no style {name!r}: the styles are {', '.join(STYLES)}")
    return STYLES[name]


class OverlayOptions(TypedDict, total=False):
    """The arguments of `OverlayStyle`, which the drawing functions take as their own."""

    style: StyleName
    smooth: bool | None
    cmap: str | Colormap | None
    opacity: float | None


class OverlayStyle(NamedTuple):
    """How the maps of one figure are drawn. None = the style's default."""

    style: StyleName = DEFAULT
    smooth: bool | None = None
    cmap: str | Colormap | None = None
    """Colours in place of the style's: in heat above even attention, otherwise over the whole photo."""
    opacity: float | None = None

    @property
    def saturation(self) -> float:
        return style_of(self.style).saturation

    @property
    def is_smooth(self) -> bool:
        """Whether maps are interpolated between cells."""
        return style_of(self.style).smooth if self.smooth is None else self.smooth

    @property
    def is_blurred(self) -> bool:
        """Whether maps are blurred."""
        return self.is_smooth and style_of(self.style).blurred

    def drawn(self, maps: Array) -> Array:
        """Maps (..., rows, cols) as they are drawn: blurred ones have more pixels than cells."""
        return enlarged(maps) if self.is_blurred else maps

    def scale_of(self, *maps: Array, signed: bool = False) -> Scale:
        """One scale for maps (..., rows, cols) as they are drawn, see `scale.scale_of`."""
        drawn = [self.drawn(weights) for weights in maps]
        scale = scale_of(*drawn, signed=signed)
        lows = [float(weights.min()) for weights in drawn if weights.size]
        if not self.is_blurred or signed or not lows or scale.high - min(lows) <= EQUAL * abs(scale.high):
            return scale
        return scale._replace(low=min(lows))

    @property
    def strength(self) -> float:
        """The opacity.

        Raises:
            ValueError: it is not between 0 and 1.
        """
        opacity = style_of(self.style).opacity if self.opacity is None else self.opacity
        if not 0 <= opacity <= 1:
            raise ValueError(f"opacity must be between 0 and 1, not {opacity}")
        return opacity

    def colours(self, scale: Scale) -> Colormap:
        """The colours that lie over the photo, with their transparency, from `scale.low` to `scale.high`.

        Raises:
            ValueError: no such style or colour map, or the opacity is not between 0 and 1.
        """
        weights = np.linspace(scale.low, scale.high, STEPS)
        level = (weights - scale.low) / (scale.high - scale.low)
        cmap = None if self.cmap is None else colour_map(self.cmap)
        if self.style == "heat":
            rgb, alpha = _heat(scale, weights, level, cmap, self.strength)
        elif cmap is not None:
            rgb, alpha = cmap(level)[:, :3], np.full(STEPS, self.strength)
        else:
            rgb, alpha = self._shade(scale, weights, level)
        return ListedColormap(np.hstack([rgb, alpha[:, None]]), name=self.style)

    def _shade(self, scale: Scale, weights: Array, level: Array) -> tuple[Array, Array]:
        """(STEPS, 3) and (STEPS,): the formula of paper, glow and cells as a colour and its transparency."""
        style, opacity = style_of(self.style), self.strength
        if scale.signed:
            value, colour, tint = np.sqrt(np.abs(weights) / scale.high), _two_colours(weights), SIGNED_TINT
        else:
            levels = {"even": ease(_excess(scale, weights)), "root": np.sqrt(level), "linear": level}
            value = levels[style.level]
            colour, tint = np.broadcast_to(style.colour, (STEPS, 3)), style.tint
        share = (min(tint, opacity) * value)[:, None]
        alpha = opacity * (1 - value[:, None]) + share
        return np.divide(colour * share, alpha, out=np.zeros((STEPS, 3)), where=alpha > 0), alpha[:, 0]


def colour_map(cmap: str | Colormap) -> Colormap:
    """Matplotlib's colour map of this name.

    Raises:
        ValueError: there is none.
    """
    if isinstance(cmap, Colormap):
        return cmap
    if cmap not in colormaps:
        examples = "viridis, magma, inferno, cividis, turbo, gray"
        raise ValueError(
            f"there is no colour map {cmap!r}: give a name that Matplotlib knows, such as {examples}"
        )
    return colormaps[cmap]


def heat_colours(colours: Colormap | None, count: int) -> Array:
    """(count, 3) RGB from just above even attention to the highest weight; of a colour map if one is given."""
    name, start, end = HEAT
    cmap, start, end = (colormaps[name], start, end) if colours is None else (colours, 0.0, 1.0)
    return cmap(np.linspace(start, end, count))[:, :3]


def _heat(
    scale: Scale, weights: Array, level: Array, cmap: Colormap | None, opacity: float
) -> tuple[Array, Array]:
    if scale.signed:
        rgb = _two_colours(weights) if cmap is None else cmap(level)[:, :3]
        return rgb, opacity * np.sqrt(np.abs(weights) / scale.high)
    excess = _excess(scale, weights)
    colours = heat_colours(cmap, STEPS)
    return colours[np.rint(excess * (STEPS - 1)).astype(int)], opacity * ease(excess)


def _excess(scale: Scale, weights: Array) -> Array:
    """e: 0 up to the mean, 1 at the highest weight. If no weight is above the mean, it is 0 throughout."""
    span = scale.high - scale.mean
    # Rounding may put the highest of equal weights just above their mean.
    if span <= EQUAL * abs(scale.high):
        return np.zeros_like(weights)
    return np.clip((weights - scale.mean) / span, 0, 1)


def _two_colours(weights: Array) -> Array:
    return np.where(weights[:, None] < 0, BELOW, ABOVE)
