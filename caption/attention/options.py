"""Checks of the numerical options of parts."""

from __future__ import annotations

from caption.core.errors import UserError
from caption.core.regions import Grid


def at_least_one(part: object, **options: int) -> None:
    """Raise UserError if an option of a part is below 1."""
    for name, value in options.items():
        if value < 1:
            raise UserError(f"{name} {value} of {type(part).__name__} must be at least 1")


def above_zero(part: object, **options: float | None) -> None:
    """Raise UserError if an option of a part is neither None nor above 0."""
    for name, value in options.items():
        if value is not None and not value > 0:
            raise UserError(f"{name} {value} of {type(part).__name__} must be above 0")


def odd_kernel(part: object, kernel: int) -> None:
    """Raise UserError if the width of a part's filters is even."""
    if kernel % 2 == 0:
        raise UserError(f"kernel {kernel} of {type(part).__name__} must be odd, so that it has a centre")


def fits_side(part: object, side: int, grid: Grid) -> None:
    """Raise UserError if a grid has more rows or columns than the learned map of a part."""
    if max(grid) > side:
        raise UserError(
            f"side {side} of {type(part).__name__} is too small for a grid of {grid[0]}x{grid[1]} regions: make it "
            f"{max(grid)}"
        )
