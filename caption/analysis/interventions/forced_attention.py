"""Forced attention: edits of the maps at some of a caption's steps, and of the regions that it may attend to at all.

    Force((2, 5), at="circle")     at "circle" look at one region, or take another map
    Move(right=3, at="circle")     look three columns further to the right
    Mask(box, at="circle")         do not look into the box; the other regions share its weight
    Erase(box)                     the box's regions are not in the image: at no step, nor in the first state

A place is a cell, a box in the photo's pixels or a map (`selection.Place`). `at` is a step, a word, several of these,
or None for all steps (`selection.Steps`). Steps and words refer to the caption of the unedited model. Places, rows and
columns refer to the grid of the caption's weights.

Every map of every attention is edited: each head, hop and channel alike, and maps on other grids by the area that they
cover. A map's sum, of magnitudes where weights may be negative, is kept: a sentinel keeps its share.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from caption.analysis.interventions.selection import (
    LEAST_COVER,
    Place,
    Steps,
    amounts,
    step_of,
    steps_of,
    tokens_of,
    touched,
)
from caption.analysis.map_arithmetic import nothing_left, resampled, rescaled, shifted, with_sum_of
from caption.attention.map_hooks import Edit
from caption.core.errors import UserError
from caption.core.regions import Grid
from caption.results.caption import Caption


class Change(ABC):
    """An edit of the maps at some steps."""

    at: Steps

    def edit(self, caption: Caption) -> Edit:
        """The edit; at other steps it returns the map itself.

        Args:
            caption: of the unedited model; steps, words and places refer to it.

        Raises:
            ValueError: it has no such step, word or place.
        """
        steps, function = steps_of(self.at, caption), self.function(caption)
        return lambda weights, step, grid: (
            function(weights, grid) if steps is None or step in steps else weights
        )

    @abstractmethod
    def function(self, caption: Caption) -> Callable[[Tensor, Grid], Tensor]:
        """A map (B, K, ..., L) and its grid -> the edited map, at any step."""


@dataclass(frozen=True, eq=False)
class Force(Change):
    """α[t] ← another map.

    Args:
        where: a place; or a word of the caption, other than the end token, whose map is taken.
        at: see the module.
    """

    where: Place | str
    at: Steps = None

    def function(self, caption: Caption) -> Callable[[Tensor, Grid], Tensor]:
        """Every map becomes the other one, with its own sum."""
        if isinstance(self.where, str):
            step = step_of(self.where, tokens_of(caption))
            if step == len(caption.words):
                raise ValueError(f"{self.where!r} is not a word: a caption holds no map of its end token")
            place = caption.weights[step]
            if not place.any():
                raise ValueError(f"{self.where!r} looks nowhere: all weights of its map are 0")
        else:
            place = amounts(self.where, caption)
        place = place / np.abs(place).max()  # the sum of the largest floats would be infinite
        target = torch.from_numpy(place / np.abs(place).sum()).flatten()

        def force(weights: Tensor, grid: Grid) -> Tensor:
            return with_sum_of(weights, resampled(target, _grid(caption), grid))

        return force


@dataclass(frozen=True, eq=False)
class Move(Change):
    """α[t] shifted on the grid. Weights beyond the grid are lost, and the rest is scaled.

    Args:
        down: rows; negative = up.
        right: columns; negative = to the left.
        at: see the module.
    """

    down: int = 0
    right: int = 0
    at: Steps = None

    def function(self, caption: Caption) -> Callable[[Tensor, Grid], Tensor]:
        """Every map is shifted by the same part of its grid."""
        rows, cols = _grid(caption)
        try:
            down, right = operator.index(self.down), operator.index(self.right)
        except TypeError:
            raise ValueError(
                f"a map is moved by whole rows and columns, not by {self.down!r} and {self.right!r}"
            ) from None
        if abs(down) >= rows or abs(right) >= cols:
            raise ValueError(
                f"moved by {down} rows and {right} columns, nothing stays on the grid of {rows} rows and {cols} columns"
            )

        def move(weights: Tensor, grid: Grid) -> Tensor:
            return scaled_like(shifted(weights, grid, down * grid[0] / rows, right * grid[1] / cols), weights)

        return move


@dataclass(frozen=True, eq=False)
class Mask(Change):
    """α[t] is 0 in a place, and the rest is scaled: for a softmax, as if the scores there were −∞.

    Args:
        where: a place; every region that has a part in it.
        at: see the module.
    """

    where: Place
    at: Steps = None

    def function(self, caption: Caption) -> Callable[[Tensor, Grid], Tensor]:
        """The parts of regions that lie in the place lose their weight."""
        visible = visible_regions([self.where], caption).double()

        def mask(weights: Tensor, grid: Grid) -> Tensor:
            share = resampled(visible, _grid(caption), grid)
            return scaled_like(weights * share.where(share > LEAST_COVER, 0).to(weights), weights)

        return mask


@dataclass(frozen=True, eq=False)
class Erase:
    """Regions are taken out of the image's memory: nothing attends to them, and a first state that is made from the
    mean region (`InitialState`) is made from the others. Neighbouring regions may still have seen the place.

    On further grids of the image, every region that has a part in the erased ones is erased.

    Args:
        where: a place; every region that has a part in it.
    """

    where: Place


def visible_regions(places: Sequence[Place], caption: Caption) -> Tensor:
    """(L,) bool: the regions that have no part in any of the places. Raises a ValueError if there are none."""
    hidden = np.zeros(_grid(caption), dtype=bool)
    for place in places:
        hidden |= touched(place, caption)
    return _checked(torch.from_numpy(~hidden).flatten())


def visible_on(places: Sequence[Place], caption: Caption, grid: Grid) -> Tensor:
    """(L',) bool: `visible_regions` for another grid of the image; errors as there."""
    return _checked(
        resampled(visible_regions(places, caption).double(), _grid(caption), grid) > 1 - LEAST_COVER
    )


def scaled_like(edited: Tensor, weights: Tensor) -> Tensor:
    """Edited weights (..., L), with the sum that the weights had.

    Raises:
        UserError: no weight is left to scale.
    """
    if nothing_left(edited, weights):
        raise UserError(
            "all attention lies on regions that are masked or erased: there is nothing left to read"
        )
    return rescaled(edited, weights)


def _checked(regions: Tensor) -> Tensor:
    """The regions (L,) bool; a ValueError if there are none."""
    if not regions.any():
        raise ValueError(
            f"all {regions.numel()} regions would be hidden: the model would have nothing to look at"
        )
    return regions


def _grid(caption: Caption) -> Grid:
    rows, cols = caption.weights.shape[1:]
    return rows, cols
