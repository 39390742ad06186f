"""The mark in every figure and page of this package, by which a later run knows that it may replace the file."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

MARK = "caption: where the model looked"
"""In the metadata of figures (PNG, JPEG, PDF, SVG ...) and in the head of pages."""
SEARCHED = 1 << 16
"""Bytes at both ends of a file in which the mark is looked for."""
ATTENTION = {"words.npy", "weights.npy", "gates.npy", "box.npy"}
"""Members of every file of attention weights."""


def is_replaceable(path: Path) -> bool:
    """Whether a file may be written at `path`: there is none, this package wrote it, or it is a device or pipe."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return True
    except (OSError, ValueError):  # none, or one that cannot be reached, which is reported when it is written
        return True
    try:
        with path.open("rb") as file:
            head = file.read(SEARCHED)
            file.seek(max(0, os.fstat(file.fileno()).st_size - SEARCHED))
            if MARK.encode() in head + file.read(SEARCHED):
                return True
        with zipfile.ZipFile(path) as archive:
            return set(archive.namelist()) >= ATTENTION
    except Exception:  # damaged archives raise almost anything
        return False
