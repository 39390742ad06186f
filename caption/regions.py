"""Regions: the grid of vectors that an encoder makes of an image, and that travels whole to the attention."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Regions(NamedTuple):
    """One grid of region vectors for each of B images."""

    vectors: Tensor
    """(B, L, D) region vectors a, row by row: region i stands at row i // cols, column i % cols."""
    grid: tuple[int, int]
    """(rows, cols), rows · cols = L. The grid covers the transform's whole output in equal cells."""
    mask: Tensor | None = None
    """(B, L) bool, True where there is a region; None when all are real."""


Views = tuple[Regions, ...]
"""All grids of the same images: levels of a pyramid, layers, two encoders. Most encoders give one."""
