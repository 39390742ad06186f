"""Bootstrap confidence intervals of scores and means, and a paired test between two systems.

Both draw the images with replacement (Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation").
A score keeps the contribution of each image, so a draw costs one row of a matrix product. The n-gram weights of CIDEr
do not change with the draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from caption.metrics.score import MetricScore, mean_of

RESAMPLES = 1000
_BOUNDS = (0.025, 0.975)  # of an interval, in shares of the draws
_ROWS = 100  # draws at a time: 100 x 40,000 images are 32 MB


class Interval(NamedTuple):
    """The score is between `low` and `high` in 95 % of all draws."""

    low: float
    high: float


class Comparison(NamedTuple):
    """One metric of two systems on the same images."""

    difference: float
    """Second minus first."""
    low: float
    """Bounds of the difference in 95 % of all draws."""
    high: float
    p_value: float
    """Two-sided: how often chance alone would make a difference this large."""


def confidence_interval(score: MetricScore) -> Interval | None:
    """The percentile interval of a score over draws of its images; None if the score was not computed, or of one image:
    all draws would be alike."""
    if score.value is None or score.statistics is None or len(score.statistics) < 2:
        return None
    values = np.concatenate([score.resampled(draws) for draws in _draws(score)])
    low, high = np.quantile(values, _BOUNDS)
    return Interval(float(low), float(high))


def compare(first: MetricScore, second: MetricScore) -> Comparison | None:
    """A test whether the second system is better or worse than the first; None if either score was not computed, or of
    one image.

    The interval is that of the difference when both are scored on the same draw of images. The p-value is the share of
    draws whose difference is at least as far from the mean difference as the measured difference is from zero, with one
    added to draws and cases (Davison and Hinkley 1997, chapter 4). Draws of few images vary too little, so with
    fewer than about 30 images intervals are too short and p-values too small.

    Args:
        first, second: the same metric on the same images in the same order.
    """
    if first.value is None or second.value is None or first.statistics is None or len(first.statistics) < 2:
        return None
    measured = second.value - first.value
    differences = np.concatenate(
        [second.resampled(draws) - first.resampled(draws) for draws in _draws(first)]
    )
    as_far = np.abs(differences - differences.mean()) >= abs(measured) - 1e-12
    low, high = np.quantile(differences, _BOUNDS)
    return Comparison(measured, float(low), float(high), float((as_far.sum() + 1) / (RESAMPLES + 1)))


def _draws(score: MetricScore) -> Iterator[np.ndarray]:
    """Blocks (_ROWS, images): how often each draw has each image. Equal numbers of images have the same draws."""
    assert score.statistics is not None
    images = len(score.statistics)
    generator = np.random.default_rng(0)
    for _ in range(RESAMPLES // _ROWS):
        yield generator.multinomial(images, np.full(images, 1 / images), size=_ROWS).astype(float)


class Estimate(NamedTuple):
    """A mean and its percentile interval over bootstrap draws of the images; NaN where one image has all values."""

    mean: float
    low: float
    high: float


def estimate(values: Sequence[float] | np.ndarray, images: Sequence[int] | np.ndarray) -> Estimate:
    """The mean of N values, and its 95 % interval. Words of one image are correlated, so whole images are drawn.

    Args:
        values: (N,), one for each measured word or mention.
        images: (N,), the image of each value; images with more values weigh more.

    Raises:
        ValueError: there are no values, or the number of images differs.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or numbers.shape != np.shape(images) or not len(numbers):
        raise ValueError(
            f"a mean takes one number and one image per word, not {numbers.shape} and {np.shape(images)}"
        )
    ids, places = np.unique(images, return_inverse=True)
    statistics = np.column_stack([np.bincount(places, weights=numbers), np.bincount(places)])
    score = MetricScore.from_statistics("mean", ids.tolist(), statistics, mean_of)
    assert score.value is not None
    return Estimate(score.value, *(confidence_interval(score) or (np.nan, np.nan)))
