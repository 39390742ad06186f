"""The photos that a command line names: files, and folders with the files in them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def photos_of(arguments: Iterable[str]) -> list[str]:
    """Files as they are named, and for each folder the images in it, by name.

    A folder's images are the files with a suffix that Pillow reads, not hidden ones, and not those in folders below. A
    folder without any stands for itself: whoever opens it will say what is wrong.
    """
    photos: list[str] = []
    for argument in arguments:
        # What cannot be asked for, or not be listed, is a photo that cannot be read.
        try:
            inside = _images(Path(argument)) if Path(argument).is_dir() else []
        except (OSError, ValueError):
            inside = []
        photos += inside or [argument]
    return photos


def _images(folder: Path) -> list[str]:
    suffixes = _suffixes()
    return sorted(
        str(path)
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith(".") and not path.is_dir()
    )


def _suffixes() -> set[str]:
    """Of what Pillow decodes."""
    from PIL import Image

    return {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
