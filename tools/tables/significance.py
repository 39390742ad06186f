"""Means over seeds, with Student's intervals, and p-values of many comparisons corrected for their number.

Mechanisms are compared over repeated trainings, so a seed is one observation, whatever the number of its images.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy.stats import t as student

LEVEL = 0.05
"""The level of significance; intervals are those of 1 − LEVEL."""


class Estimate(NamedTuple):
    """A mean over seeds, or a difference of two means."""

    mean: float
    low: float
    """Bounds of the 95 % interval."""
    high: float
    p_value: float
    """Two-sided, against 0."""
    corrected: float = 1.0
    """The same after Holm's correction."""
    discovery: float = 1.0
    """The same after Benjamini and Hochberg's."""
    spread: float = 0.0
    """The standard error times √seeds: for pairs, the standard deviation of the differences."""


def over_seeds(values: Mapping[str, float], base: Mapping[str, float] | None = None) -> Estimate | None:
    """The mean of `values`, or its difference from the mean of `base`; None if either has fewer than two seeds.

    If both have the same seeds, the differences of each seed are the observations. Else the interval is Welch's (1947).

    Args:
        values, base: one number for each seed.
    """
    if base is not None and values.keys() == base.keys():
        values, base = {seed: value - base[seed] for seed, value in values.items()}, None
    samples = [[*by_seed.values()] for by_seed in (values, base) if by_seed is not None]
    if min(map(len, samples)) < 2:
        return None
    mean = statistics.mean(samples[0]) - sum(map(statistics.mean, samples[1:]))
    variances = [statistics.variance(sample) / len(sample) for sample in samples]
    if not any(variances):
        return Estimate(mean, mean, mean, float(mean == 0))
    error = math.sqrt(sum(variances))
    terms = (variance**2 / (len(sample) - 1) for variance, sample in zip(variances, samples, strict=True))
    freedom = error**4 / sum(terms)
    half = quantile(LEVEL, freedom) * error
    p_value = float(2 * student.sf(abs(mean) / error, freedom))
    return Estimate(mean, mean - half, mean + half, p_value, spread=error * math.sqrt(len(samples[0])))


def quantile(p_value: float, freedom: float) -> float:
    """The t with this two-sided p-value."""
    return float(student.isf(p_value / 2, freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number: below a level with a chance of at most that level if all differences are 0.

    Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure": the smallest of n is multiplied by n, the next
    by n − 1, and so on, and none is smaller than the one before it.
    """
    corrected, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """P-values corrected so that of those below a level, at most this share is expected to be of differences of 0.

    Benjamini and Hochberg 1995, "Controlling the False Discovery Rate": the one of rank k among n is multiplied by
    n / k, and none is larger than the one after it.
    """
    corrected, smallest, n = [1.0] * len(p_values), 1.0, len(p_values)
    for rank, place in reversed([*enumerate(sorted(range(n), key=p_values.__getitem__), start=1)]):
        smallest = min(smallest, n / rank * p_values[place])
        corrected[place] = smallest
    return corrected


def with_corrections(estimates: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """The estimates of one family of tests, with their corrected p-values."""
    p_values = [estimate.p_value for estimate in estimates.values()]
    return {
        name: estimate._replace(corrected=of_family, discovery=of_discoveries)
        for (name, estimate), of_family, of_discoveries in zip(
            estimates.items(), holm(p_values), benjamini_hochberg(p_values), strict=True
        )
    }
