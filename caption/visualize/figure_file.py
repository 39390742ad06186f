"""Figures as files and in notebooks."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from caption.core.errors import printable
from caption.core.runtime.atomic_files import Opener, OutputError, is_device, replacing
from caption.core.runtime.outputs import marked
from caption.visualize.fonts import fonts_of_all_scripts

DPI = 150
SCREEN = 96  # pixels on an inch of a notebook
VECTORS = ("pdf", "svg", "svgz", "eps", "ps")
MOST_PIXELS = 300e6
ENCODING: dict[str, dict[str, Any]] = {
    # Compressing photos as PNG takes longer than drawing them; level 2 is nearly as small and much faster.
    "png": {"compress_level": 2},
    # Pillow's own 75 and 80 blur letters.
    **{extension: {"quality": 92} for extension in ("jpg", "jpeg", "webp")},
}


class NotebookFigure(Figure):
    """A figure that a notebook shows as the last line of a cell, without pyplot, with fonts for all scripts."""

    def draw(self, renderer: RendererBase) -> None:
        """Also called by `savefig` and by the printers of notebooks."""
        with fonts_of_all_scripts(self):
            super().draw(renderer)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        # Drawn finer than it is shown: small letters stay sharp.
        width, height = (round(SCREEN * inches) for inches in self.get_size_inches())
        return render(self, "png", DPI), {"width": width, "height": height}

    def _ipython_display_(self) -> None:
        # Used before the printer that "%matplotlib inline" registers for all figures, which draws at another size.
        from IPython.display import display

        picture, size = self._repr_png_()
        data = {"image/png": base64.b64encode(picture).decode(), "text/plain": repr(self)}
        display(data, raw=True, metadata={"image/png": size})


def save_figure(
    fig: Figure,
    path: str | os.PathLike[str],
    opener: Opener = replacing,
    *,
    width: int | None = None,
) -> None:
    """Write a figure; the extension of the name chooses the format, such as png, pdf or svg; a device gets a PNG.

    Text and lines of PDF and SVG are vectors; photos and maps are pictures in them.

    Args:
        fig: the figure.
        path: the file.
        opener: which file of that name may be replaced, see `caption.core.runtime.atomic_files`; by default any.
        width: of the picture in pixels; by default 150 per inch.

    Raises:
        OutputError: Matplotlib has no such format, the picture would be too large, or the file cannot be written.
    """
    formats = fig.canvas.get_supported_filetypes()
    extension = Path(path).suffix.lstrip(".").lower() or "png" * is_device(Path(path))
    if extension not in formats:
        raise OutputError(f"cannot write {path}: a figure's name ends in one of {', '.join(sorted(formats))}")
    dpi = DPI if width is None else dpi_of(fig, width)
    pixels = dpi**2 * fig.get_size_inches().prod()
    if extension not in VECTORS and pixels > MOST_PIXELS:
        raise OutputError(
            f"{printable(path)} would have {pixels / 1e6:,.0f} million pixels, more than {MOST_PIXELS / 1e6:.0f}: take "
            "a lower resolution or width, or fewer panels"
        )
    try:
        picture = render(fig, extension, dpi)
    except (ValueError, OSError) as error:  # JPEG and WebP have largest sizes of their own
        raise OutputError(f"{printable(path)} could not be drawn: {error}") from error
    with opener(path) as file:
        file.write(picture)


def dpi_of(fig: Figure, width: int) -> float:
    """The resolution at which a figure has this width in pixels."""
    return (width + 0.01) / fig.get_size_inches()[0]  # Matplotlib rounds down


def pixels(fig: Figure, dpi: float) -> np.ndarray:
    """The figure as (height, width, 3) uint8, without pyplot, which would keep the figure."""
    fig.set_dpi(dpi)
    canvas = FigureCanvasAgg(fig)
    with fonts_of_all_scripts(fig):
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def render(fig: Figure, extension: str, dpi: float) -> bytes:
    """The figure as the content of a file in this format, with this package's mark if the format has a place for it."""
    buffer = io.BytesIO()
    # Browsers refuse an SVG with control characters, which file names may contain.
    for text in fig.findobj(Text):
        lines = map(printable, text.get_text().split("\n"))
        text.set_text("\n".join(lines).encode("utf-8", "backslashreplace").decode())
    options = marked(extension)
    if extension in ENCODING:
        options["pil_kwargs"] = {**options.get("pil_kwargs", {}), **ENCODING[extension]}
    with fonts_of_all_scripts(fig):
        fig.savefig(buffer, format=extension, dpi=dpi, **options)
    return buffer.getvalue()
