"""What a scale says of the maps of words, with its mean and p-value."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caption.analysis.per_word import known_mean
from caption.metrics.significance import Estimate

FLIPS = 20_000
"""Draws of signs for a p-value."""


class Scale(NamedTuple):
    """What a scale says of the maps of N words."""

    values: np.ndarray
    """(N,), NaN where it says nothing."""
    images: np.ndarray
    """(N,) the photo of each word."""

    @property
    def words(self) -> int:
        """Number of words of which it says something."""
        return int((~np.isnan(self.values)).sum())

    @property
    def mean(self) -> Estimate:
        """See `known_mean`."""
        return known_mean(self.values, self.images)

    @property
    def p_value(self) -> float:
        """Two-sided, against a mean of 0: how often the mean is as far from 0 if the signs of all values of a photo are
        drawn at random, in `FLIPS` draws."""
        known = ~np.isnan(self.values)
        sums = np.bincount(np.unique(self.images[known], return_inverse=True)[1], self.values[known])
        signs = np.random.default_rng(0).integers(0, 2, (FLIPS, len(sums))) * 2 - 1
        as_far = np.abs(signs @ sums) >= abs(sums.sum()) - 1e-9
        return float((as_far.sum() + 1) / (FLIPS + 1))
