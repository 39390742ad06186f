"""Figures as files and in notebooks."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from caption.errors import printable
from caption.runtime.figure_formats import marked
from caption.runtime.files import MARK, Opener, OutputError, is_device, replacing

DPI = 150
PNG_BYTES = 400_000
"""The most that a PNG may take if no resolution is asked for."""
NOTEBOOK_BYTES = 200_000  # of a PNG in a notebook, which may have many
SMALLEST = 0.4
"""The resolution is reduced to this part of it at most."""
SCREEN = 96  # pixels on an inch of a notebook


class NotebookFigure(Figure):
    """A figure that a notebook shows as the last line of a cell, without pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        # Drawn finer than it is shown, as far as the bytes allow: small letters stay sharp.
        width, height = (round(SCREEN * inches) for inches in self.get_size_inches())
        return _small_png(self, NOTEBOOK_BYTES), {"width": width, "height": height}

    def _ipython_display_(self) -> None:
        # Comes before the printer that "%matplotlib inline" registers for all figures, which draws at another size.
        from IPython.display import display

        picture, size = self._repr_png_()
        data = {"image/png": base64.b64encode(picture).decode(), "text/plain": repr(self)}
        display(data, raw=True, metadata={"image/png": size})


def save_figure(
    fig: Figure, path: str | os.PathLike[str], dpi: float | None = None, opener: Opener = replacing
) -> None:
    """Write a figure; the extension of the name chooses the format, such as png, pdf or svg; a device gets a PNG.

    Text and lines of PDF and SVG are vectors; photos and maps are pictures in them.

    Args:
        fig: the figure.
        path: the file.
        dpi: pixels on an inch. By default 150, and a PNG takes at most 400 kB: if it must, it has 256 colours, then
            fewer pixels, but no fewer than 60 on an inch.
        opener: which file of that name may be replaced, see `caption.runtime.files`; by default any.

    Raises:
        OutputError: Matplotlib knows no such extension, or the file cannot be written.
    """
    known = fig.canvas.get_supported_filetypes()
    extension = Path(path).suffix.lstrip(".").lower() or "png" * is_device(Path(path))
    if extension not in known:
        raise OutputError(f"cannot write {path}: a figure's name ends in one of {', '.join(sorted(known))}")
    small = extension == "png" and dpi is None
    picture = _small_png(fig, PNG_BYTES) if small else _render(fig, extension, dpi or DPI)
    with opener(path) as file:
        file.write(picture)


def _small_png(fig: Figure, most: int) -> bytes:
    """At most so many bytes, if a resolution of SMALLEST times DPI allows it."""
    picture = _render(fig, "png", DPI)
    if len(picture) <= most:
        return picture
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    # Median cut would spend its colours on the photo, and maps would get bands. A ninth of the pixels has all colours.
    few = image.resize([max(1, side // 3) for side in image.size], Image.Resampling.NEAREST)
    palette = few.quantize(256, Image.Quantize.MAXCOVERAGE)
    mark = PngInfo()
    mark.add_text("Software", MARK)
    share = 1.0
    while True:
        buffer = io.BytesIO()
        smaller = image.resize([max(1, round(share * side)) for side in image.size], Image.Resampling.BICUBIC)
        smaller.quantize(palette=palette).save(buffer, "PNG", dpi=(DPI * share,) * 2, pnginfo=mark)
        if buffer.tell() <= most or share == SMALLEST:
            return buffer.getvalue()
        # The bytes grow a little more slowly than the pixels.
        share = max(SMALLEST, 0.98 * share * (most / buffer.tell()) ** 0.5)


def _render(fig: Figure, extension: str, dpi: float) -> bytes:
    buffer = io.BytesIO()
    # No browser reads an SVG with control characters, which names of files may have.
    for text in fig.findobj(Text):
        lines = map(printable, text.get_text().split("\n"))
        text.set_text("\n".join(lines).encode("utf-8", "backslashreplace").decode())
    # Compressing photos as PNG takes longer than drawing them; level 2 is nearly as small, much sooner.
    quick: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if extension == "png" else {}
    fig.savefig(buffer, format=extension, dpi=dpi, **marked(extension), **quick)
    return buffer.getvalue()
