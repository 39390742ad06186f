"""Means over words, and how sure they are. Words of one image succeed and fail together, so whole images are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from caption.metrics.score import MetricScore, mean_of
from caption.metrics.significance import LEVEL, RESAMPLES, Comparison, compare, confidence_interval


class Estimate(NamedTuple):
    """A mean and its percentile interval over bootstrap draws of the images."""

    mean: float
    low: float
    high: float


def estimate(
    values: Sequence[float] | np.ndarray,
    images: Sequence[int] | np.ndarray,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The mean of N values, and its interval.

    Args:
        values: (N,), one for each word, mention or whatever was measured.
        images: (N,), which image each belongs to; images with more words weigh more.
        level: share of the draws inside the interval.
        resamples: number of draws.
        seed: the same seed gives the same interval.

    Raises:
        ValueError: there are no values, or not one image for each.
    """
    score = _score(values, images)
    interval = confidence_interval(score, level, resamples, seed)
    assert score.value is not None
    assert interval is not None
    return Estimate(score.value, interval.low, interval.high)


def difference(
    first: Sequence[float] | np.ndarray,
    second: Sequence[float] | np.ndarray,
    images: Sequence[int] | np.ndarray,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Mean of `second` less mean of `first`, measured on the same words: interval and p-value of the paired bootstrap.

    Args as in `estimate`. Raises ValueError where the three differ in length or are empty.
    """
    compared = compare(_score(first, images), _score(second, images), resamples, seed)
    assert compared is not None
    return compared


def _score(values: Sequence[float] | np.ndarray, images: Sequence[int] | np.ndarray) -> MetricScore:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or numbers.shape != np.shape(images) or not len(numbers):
        raise ValueError(
            f"a mean takes one number and one image per word, not {numbers.shape} and {np.shape(images)}"
        )
    ids, which = np.unique(images, return_inverse=True)
    statistics = np.column_stack([np.bincount(which, weights=numbers), np.bincount(which)])
    return MetricScore.from_statistics(
        "mean", ids.tolist(), mean_of(statistics).tolist(), statistics, mean_of
    )
