"""The formats of figures: known before Matplotlib, which is slow to import, and with a place for our mark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from caption.errors import UserError, printable
from caption.runtime.files import MARK

FIGURES = tuple(
    f".{name}"
    for name in "png pdf svg jpg jpeg webp tif tiff eps ps gif avif svgz raw rgba".split()  # noqa: SIM905
)
"""Suffixes of figures. Matplotlib before 3.11 lacks gif and avif. Its pgf needs LaTeX, and leaves out photos."""
ANIMATIONS = (".gif", ".webp", ".mp4")
"""Suffixes of animations."""


def check_encoder(path: Path) -> None:
    """Check that an animation of this name can be written.

    Raises:
        UserError: it needs ffmpeg, and there is none.
    """
    if path.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise UserError(
            f"{printable(path)}: .mp4 files are written by ffmpeg, which is not installed: install it, or name a .gif "
            "or .webp"
        )


def marked(extension: str) -> dict[str, Any]:
    """Arguments of `savefig` that write our mark, for formats that have a place for it."""
    if extension == "png":
        return {"metadata": {"Software": MARK}}
    if extension in ("pdf", "svg", "eps", "ps"):
        return {"metadata": {"Creator": MARK}}
    if extension in ("jpg", "jpeg", "tif", "tiff", "webp", "avif"):
        from PIL import ExifTags, Image

        exif = Image.Exif()
        exif[ExifTags.Base.Software] = MARK
        return {"pil_kwargs": {"exif": exif}}
    return {"pil_kwargs": {"comment": MARK}} if extension == "gif" else {}
