"""Regions: the grid of vectors, with its mask, that an encoder gives for an image."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Regions(NamedTuple):
    """A grid of region vectors for each of B images."""

    vectors: Tensor
    """(B, L, D) region vectors a in row order: region i is at row i // cols, column i % cols."""
    grid: tuple[int, int]
    """(rows, cols), rows · cols = L. The grid covers the transform's whole output in equal cells."""
    mask: Tensor | None = None
    """(B, L) bool, True where there is a region; None when all are real."""


Views = tuple[Regions, ...]
"""All grids of the same images, such as levels of a pyramid, layers, or two encoders. Most encoders give one."""
