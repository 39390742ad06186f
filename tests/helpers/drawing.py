"""Maps drawn over photos, as pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from caption.visualize import overlay
from caption.visualize.scale import Scale


def draw_overlay(
    photo: Image.Image, weights: Any, box: Any, scale: Scale | None = None, **options: Any
) -> np.ndarray:
    """(height, width, 3) int: one pixel for each of the photo's."""
    width, height = photo.size
    fig = Figure(figsize=(width / 100, height / 100), dpi=100)
    canvas = FigureCanvasAgg(fig)
    overlay(fig.add_axes((0, 0, 1, 1)), weights, box, photo, scale, **options)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
