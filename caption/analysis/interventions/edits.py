"""What can be done to attention at some of a caption's steps, and to what it may attend to at all.

    Force((2, 5), at="circle")     at "circle" look at one region, or as a map says
    Move(right=3, at="circle")     look three columns further to the right
    Mask(box, at="circle")         do not look into the box; the other regions share its weight
    Erase(box)                     the box's regions are not in the image: at no step, nor in the first state

A place is a cell, a box in the photo's pixels or a map (`selection.Place`). `at` is a step, a word, several of these,
or None for all steps (`selection.Steps`). Steps and words refer to the caption of the unedited model.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from caption.analysis.interventions.selection import (
    Place,
    Steps,
    amounts,
    step_of,
    steps_of,
    tokens_of,
    touched,
)
from caption.errors import UserError

if TYPE_CHECKING:
    from caption.result import Caption


class Change(ABC):
    """Something done to the weights α[t] at some steps."""

    at: Steps

    def edit(self, caption: Caption) -> Callable[[Tensor, int], Tensor]:
        """What is done to weights (B, K, L) at a step; the very tensor given where it is none that is meant.

        Args:
            caption: what the model says by itself; steps, words and places are meant in it.

        Raises:
            ValueError: it has no such step, word or place.
        """
        steps, changed = steps_of(self.at, caption), self.changed(caption)
        return lambda weights, step: changed(weights) if steps is None or step in steps else weights

    @abstractmethod
    def changed(self, caption: Caption) -> Callable[[Tensor], Tensor]:
        """Weights (B, K, L) -> the weights they become, at whatever step."""


@dataclass(frozen=True, eq=False)
class Force(Change):
    """α[t] ← a given map, scaled to a sum of 1.

    Args:
        where: a place; or a word of the caption, other than the end token, whose map it shall be.
        at: see the module.
    """

    where: Place | str
    at: Steps = None

    def changed(self, caption: Caption) -> Callable[[Tensor], Tensor]:
        if isinstance(self.where, str):
            step = step_of(self.where, tokens_of(caption))
            if step == len(caption.words):
                raise ValueError(f"{self.where!r} is no word: a caption holds no map of its end token")
            place = caption.weights[step]
        else:
            place = amounts(self.where, caption)
        target = torch.from_numpy(place / place.sum()).flatten()
        return lambda weights: target.to(weights).expand_as(weights)


@dataclass(frozen=True, eq=False)
class Move(Change):
    """α[t] shifted on the grid. What leaves it is lost, the rest scaled to the sum there was.

    Args:
        down: rows; negative = up.
        right: columns; negative = to the left.
        at: see the module.
    """

    down: int = 0
    right: int = 0
    at: Steps = None

    def changed(self, caption: Caption) -> Callable[[Tensor], Tensor]:
        rows, cols = caption.weights.shape[1:]
        down, right = operator.index(self.down), operator.index(self.right)
        if abs(down) >= rows or abs(right) >= cols:
            raise ValueError(
                f"moved by {down} rows and {right} columns, nothing stays on the grid of {rows} rows and {cols} columns"
            )

        def moved(weights: Tensor) -> Tensor:
            maps = pad(weights.unflatten(-1, (rows, cols)), (right, -right, down, -down))
            return scaled_like(maps.flatten(-2), weights)

        return moved


@dataclass(frozen=True, eq=False)
class Mask(Change):
    """α[t] is 0 in a place, the rest scaled to the sum there was: for a softmax, as if the scores there were −∞.

    Args:
        where: a place; every region that has a part in it.
        at: see the module.
    """

    where: Place
    at: Steps = None

    def changed(self, caption: Caption) -> Callable[[Tensor], Tensor]:
        left = kept([self.where], caption)
        return lambda weights: scaled_like(weights * left.to(weights.device), weights)


@dataclass(frozen=True, eq=False)
class Erase:
    """Regions are taken out of the image's memory: nothing attends to them, and a first state that is made from the
    mean region (`InitialState`) is made from the others. What neighbouring regions have seen of the place remains.

    Args:
        where: a place; every region that has a part in it.
    """

    where: Place


def kept(places: list[Place], caption: Caption) -> Tensor:
    """(L,) bool: the regions that have a part in none of the places.

    Raises:
        ValueError: there are none left.
    """
    rows, cols = caption.weights.shape[1:]
    hidden = np.zeros((rows, cols), dtype=bool)
    for place in places:
        hidden |= touched(place, caption)
    if hidden.all():
        raise ValueError(
            f"all {hidden.size} regions would be hidden: the model would have nothing to look at"
        )
    return torch.from_numpy(~hidden).flatten()


def scaled_like(left: Tensor, weights: Tensor) -> Tensor:
    """What is left of weights (..., L), with the sum they had.

    Raises:
        UserError: nothing is left that could be scaled.
    """
    sums = left.sum(-1, keepdim=True)
    if (sums < 1e-30).any():
        raise UserError("all of the attention lies where it may not be: there is nothing left to read")
    return left * (weights.sum(-1, keepdim=True) / sums)
