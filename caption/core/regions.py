"""Regions, the grid of vectors with its mask that an encoder computes for an image, and properties of their weights.

Importing this module does not load PyTorch, because results do not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from caption.core.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Grid = tuple[int, int]
"""(rows, cols)."""


class Regions(NamedTuple):
    """A grid of region vectors for each of B images."""

    vectors: Tensor
    """(B, L, D) region vectors a in row order: region i is at row i // cols, column i % cols."""
    grid: Grid
    """(rows, cols), rows · cols = L. `Encoder.boxes` gives the part of the input that it covers."""
    mask: Tensor | None = None
    """(B, L) bool, True where there is a region; None when all are real."""


Views = tuple[Regions, ...]
"""All grids of the same images: levels of a pyramid, layers, two encoders. Most encoders have one."""


class WeightProperties(NamedTuple):
    """Properties of attention weights. Entropy, figures and diagnostics use them instead of the mechanism's class."""

    sums_to_one: bool = True
    """The weights of a word sum to one, including the sentinel's share if there is a sentinel."""
    signed: bool = False
    """Weights may be negative."""
    sentinel: bool = False
    """A sentinel takes part of the sum."""

    @property
    def is_distribution(self) -> bool:
        """Whether the weights of a word are a probability distribution over the regions."""
        return self.sums_to_one and not self.signed and not self.sentinel


def check_views(views: Views) -> None:
    """Raise a `UserError` if vectors, grid and mask do not fit together, or an image has no real region."""
    for number, (vectors, (rows, cols), mask) in enumerate(views):
        if rows * cols != vectors.shape[1]:
            raise UserError(
                f"view {number} has {vectors.shape[1]} regions, which do not fill its grid of {rows} rows and {cols} "
                "columns: give Regions the grid of its vectors"
            )
        if mask is None:
            continue
        if mask.shape != vectors.shape[:2]:
            raise UserError(
                f"the mask of view {number} has the shape {tuple(mask.shape)}, but the regions have "
                f"{tuple(vectors.shape[:2])}: a mask must have an entry for each region of each image"
            )
        empty = (~mask.any(1)).nonzero()
        if len(empty):
            raise UserError(
                f"the mask of view {number} hides all regions of image {int(empty[0])} of the batch: an image needs at "
                "least one real region to attend to"
            )


def mean_region(regions: Regions) -> Tensor:
    """(B, 1, D) the mean of the real regions."""
    vectors, _, mask = regions
    if mask is None:
        return vectors.mean(1, keepdim=True)
    real = mask[..., None].to(vectors.dtype)
    return (vectors * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
