"""The photos that a command line names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from caption.errors import first_few, printable
from caption.runtime.inputs import PHOTO, open_input

CAMERA_FORMATS = frozenset(
    {".heic", ".heif", ".avif", ".jxl", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf"}
)
"""Suffixes of photos, whether Pillow reads them or not: one that it cannot read is reported, not skipped."""


class Inputs(NamedTuple):
    """The photos that a command line names."""

    photos: list[str]
    notes: list[str]
    """What was left out of each folder, in a sentence."""


def input_photos(arguments: Iterable[str]) -> Inputs:
    """The photos that arguments name: files as they are, and for each folder the images in it, sorted by name.

    The images of a folder are its files with a suffix that Pillow reads or that cameras use, and files without a
    suffix that begin like an image. Hidden files are left out silently; other files and subfolders with a note. A
    folder without images stays in the list; opening it as a photo then reports the error.
    """
    photos: list[str] = []
    notes: list[str] = []
    for argument in arguments:
        images: list[str] = []
        if os.path.isdir(argument):
            with suppress(OSError):  # reported when it is opened as a photo
                names = sorted(name for name in os.listdir(argument) if name[0] != ".")
                is_image = {name: _is_image(os.path.join(argument, name)) for name in names}
                images = [os.path.join(argument, name) for name in names if is_image[name]]
                if images and not all(is_image.values()):
                    others = first_few(printable(name) for name in names if not is_image[name])
                    notes.append(f"'{printable(argument)}': left out {others} (subfolders, or not images)")
        photos += images or [argument]
    return Inputs(photos, notes)


@cache
def image_suffixes() -> frozenset[str]:
    """The suffixes, in lower case, of files that Pillow reads or that cameras write."""
    from PIL import Image

    return CAMERA_FORMATS | {
        suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN
    }


def _is_image(path: str) -> bool:
    suffix = os.path.splitext(path)[1].lower()
    if os.path.isdir(path) or (suffix and suffix not in image_suffixes()):
        return False
    return bool(suffix) or _begins_like_an_image(path)


def _begins_like_an_image(path: str) -> bool:
    from PIL import Image

    try:
        with open_input(path, PHOTO) as file, Image.open(file):
            return True
    except Exception:  # Pillow's readers raise almost anything
        return False
