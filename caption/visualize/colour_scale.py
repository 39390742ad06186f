"""The colour scale: which colour a weight has over a photo, and the bar that states it.

All panels of a figure share one scale. A weight α has the lightness l in [0, 1]:

    l = √((α − low) / (high − low))          weights that are never negative
    l = √(|α| / high) ,  low = −high         signed weights

The root is there because a screen's light is roughly the square of a pixel's value: with it, light is proportional to
α, and faint, spread-out attention does not drown in black. A photo's pixel p in [0, 1] becomes

    p · (1 − opacity · (1 − l) − tint · l) + colour · tint · l

so the photo is dark where l is small. Where l is large, white lies over it (after Xu et al. 2015, figure 3), or for
signed weights orange above 0 and blue below 0. With white, the result rises with l whatever p is, in colour and in a
grey print. The interactive page draws by the same formula.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap

OPACITY = 0.75  # how much of the photo is hidden where l = 0
TINT = 0.25  # tint of white; less than the opacity, so that l can be read
SIGNED_TINT = 0.6  # tint of orange and blue, which are darker than white
ABOVE, BELOW = (1.0, 0.58, 0.12), (0.25, 0.55, 1.0)  # RGB of positive and negative weights
STEPS = 1024  # of a colour map: the root is steep near 0


class Scale(NamedTuple):
    """The weights at the two ends of the colour scale."""

    low: float
    high: float
    signed: bool = False
    """Whether the scale diverges from 0, with low = −high."""


def scale_of(*weights: np.ndarray, signed: bool = False) -> Scale:
    """One scale for all the maps given.

    Args:
        weights: arrays of any shape; empty ones are ignored.
        signed: makes a scale that diverges from 0. Otherwise the scale goes from 0, or from the lowest weight if that
            is negative, to the highest weight.
    """
    values = np.concatenate([np.zeros(1), *(array.ravel() for array in weights)])
    low, high = float(values.min()), float(values.max())
    if signed:
        high = max(-low, high) or 1.0
        return Scale(-high, high, signed)
    return Scale(low, high if high > low else low + 1.0)


def overlay_colours(opacity: float = OPACITY, signed: bool = False) -> Colormap:
    """The formula above as a colour map with transparency, from `low` to `high`.

    Args:
        opacity: 0 leaves the photo as it is, 1 hides it where l = 0.
        signed: orange and blue around 0 in place of white.

    Raises:
        ValueError: the opacity is not between 0 and 1.
    """
    if not 0 <= opacity <= 1:
        raise ValueError(f"opacity must be between 0 and 1, not {opacity}")
    values = np.linspace(-1 if signed else 0, 1, STEPS)[:, None]
    lightness = np.sqrt(np.abs(values))
    colour = np.where(values < 0, BELOW, ABOVE) if signed else np.ones((STEPS, 3))
    tint = min(SIGNED_TINT if signed else TINT, opacity) * lightness
    alpha = opacity * (1 - lightness) + tint
    rgb = np.divide(colour * tint, alpha, out=np.zeros_like(colour), where=alpha > 0)
    return ListedColormap(np.hstack([rgb, alpha]), name="signed attention" if signed else "attention")


def draw_scale(
    ax: Axes,
    scale: Scale,
    regions: int | None = None,
    *,
    cmap: str | Colormap | None = None,
    opacity: float = OPACITY,
) -> Axes:
    """Draw a bar that states the colours of the weights, with a line at 1/L, even attention, if `regions` is given.

    Args:
        ax: a flat strip; drawn on and returned.
        scale: the weights at its two ends.
        regions: L, the number of cells. None draws no line: only for a distribution does even attention mean 1/L.
        cmap, opacity: as given to `overlay`.
    """
    ramp = np.linspace(scale.low, scale.high, STEPS)[None]
    # On light grey, both what the overlay takes from a photo and what it adds can be seen.
    ax.set_facecolor("0.75")
    layer, alpha = (overlay_colours(opacity, scale.signed), None) if cmap is None else (cmap, opacity)
    ax.imshow(ramp, cmap=layer, alpha=alpha, aspect="auto", extent=(scale.low, scale.high, 0, 1))
    if regions is not None and scale.low < 1 / regions < scale.high:
        ax.axvline(1 / regions, color="white", linewidth=2)
        ax.axvline(1 / regions, color="black", linewidth=0.8)
    ticks = [scale.low, *([0.0] if scale.signed else []), scale.high]
    ax.set(xticks=ticks, yticks=[])
    ax.set_xticklabels([f"{tick:.2g}".replace("-", "−") for tick in ticks])
    ax.tick_params(length=2, labelsize=7, pad=1)
    return ax
