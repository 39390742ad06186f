"""Regions without an encoder."""

from __future__ import annotations

from torch import Tensor

from caption.core.regions import Regions, Views


def one_row(vectors: Tensor, mask: Tensor | None = None) -> Views:
    """Vectors (B, L, D) as one view whose regions stand side by side in one row."""
    return (Regions(vectors, (1, vectors.shape[1]), mask),)
