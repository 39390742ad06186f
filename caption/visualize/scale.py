"""The scale that maps share: the weights at its two ends, and their mean, which is even attention."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Scale(NamedTuple):
    """The weights at the two ends of the colours, and the mean weight."""

    low: float
    high: float
    signed: bool = False
    """Whether the scale diverges from 0, with low = −high."""
    mean: float = 0.0
    """Of all cells. For distributions over L cells it is 1/L, even attention."""


def scale_of(*weights: np.ndarray, signed: bool = False) -> Scale:
    """One scale for all the maps given.

    Args:
        weights: arrays of any shape; empty ones are ignored.
        signed: makes a scale that diverges from 0. Otherwise the scale goes from 0, or from the lowest weight if that
            is negative, to the highest weight.
    """
    drawn = np.concatenate([np.zeros(0), *(np.asarray(array, np.float64).ravel() for array in weights)])
    low, high = float(drawn.min(initial=0)), float(drawn.max(initial=0))
    mean = float(drawn.mean()) if drawn.size else 0.0
    if signed:
        high = max(-low, high) or 1.0
        return Scale(-high, high, signed, mean)
    return Scale(low, high if high > low else low + 1.0, mean=mean)
