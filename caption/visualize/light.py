"""From α to light: one scale for a whole caption and one ramp from dim to bright.

The light l = √((α − low) / (high − low)) runs from 0 to 1 over a caption. The root is there because a pixel's
value is roughly the root of the light a screen gives for it: so it is the light that is proportional to α,
and faint, spread-out attention does not drown in black. The ramp darkens the photo where l is small and adds
a little white where it is large, after the white overlays of Xu et al. 2015, figure 3. On a photo pixel p
in [0, 1] it gives

    p · (1 − opacity · (1 − l) − glow · l) + glow · l

which rises with l whatever p is, in colour and in a grey print alike. The interactive page draws by the
same formula.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.colors import Colormap, ListedColormap

OPACITY = 0.75  # how much of the photo the dark takes away where α is lowest
GLOW = 0.25  # how much white lies over the photo where α is highest; less than the opacity, so l can be read
STEPS = 1024  # of the ramp: the root is steep near 0


class Scale(NamedTuple):
    """The α that is drawn darkest and the α that is drawn brightest."""

    low: float
    high: float


def scale_of(*weights: np.ndarray) -> Scale:
    """One scale for all the maps given: from 0, or the lowest α where weights are signed, to the highest.

    Args:
        weights: arrays of any shape; empty ones are ignored.
    """
    filled = [array for array in weights if array.size]
    low = min([0.0, *(float(array.min()) for array in filled)])
    high = max([low, *(float(array.max()) for array in filled)])
    return Scale(low, high if high > low else low + 1.0)


def light_ramp(opacity: float = OPACITY) -> Colormap:
    """The ramp as a colour map that carries its own transparency: black veil to white light.

    Args:
        opacity: 0 leaves the photo as it is, 1 hides it where α is lowest.

    Raises:
        ValueError: the opacity is not between 0 and 1.
    """
    if not 0 <= opacity <= 1:
        raise ValueError(f"opacity must be between 0 and 1, not {opacity}")
    glow = min(GLOW, opacity)
    light = np.sqrt(np.linspace(0, 1, STEPS))
    alpha = opacity * (1 - light) + glow * light
    grey = np.divide(glow * light, alpha, out=np.zeros_like(light), where=alpha > 0)
    return ListedColormap(np.stack([grey, grey, grey, alpha], axis=1), name="light")
