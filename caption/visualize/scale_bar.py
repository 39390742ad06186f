"""The bar that states which colour a weight has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from caption.visualize.scale import Scale
from caption.visualize.styles import STEPS, Look, LookOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Light grey: both what the colours take from a photo and what they add can be seen.
PHOTO = "0.75"


def draw_scale(ax: Axes, scale: Scale, regions: int | None = None, **look: Unpack[LookOptions]) -> Axes:
    """Draw a bar that states the colours of the weights, with a line at 1/L, even attention, if `regions` is given.

    Args:
        ax: a flat strip; drawn on and returned.
        scale: the weights at its two ends.
        regions: L, the number of cells. None draws no line: only for a distribution does even attention mean 1/L.
        look: as given to `overlay`.
    """
    ramp = np.linspace(scale.low, scale.high, STEPS)[None]
    ax.set_facecolor(PHOTO)
    ax.imshow(ramp, cmap=Look(**look).colours(scale), aspect="auto", extent=(scale.low, scale.high, 0, 1))
    if regions is not None and scale.low < 1 / regions < scale.high:
        ax.axvline(1 / regions, color="white", linewidth=2)
        ax.axvline(1 / regions, color="black", linewidth=0.8)
    ticks = [scale.low, *([0.0] if scale.signed else []), scale.high]
    ax.set(xticks=ticks, yticks=[])
    ax.set_xticklabels([f"{tick:.2g}".replace("-", "−") for tick in ticks])
    ax.tick_params(length=2, labelsize=7, pad=1)
    return ax
