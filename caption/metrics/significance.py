"""Bootstrap confidence intervals of scores, and a paired test between two systems.

Both draw the images with replacement (Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation").
A score keeps what each image contributes, so a draw costs one row of a matrix product. The n-gram weights of CIDEr do
not change with the draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from caption.metrics.score import MetricScore

RESAMPLES = 1000
LEVEL = 0.95
_ROWS = 100  # draws at a time: 100 x 40,000 images are 32 MB


class Interval(NamedTuple):
    """The score lies between `low` and `high` in a share of all draws."""

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


def confidence_interval(
    score: MetricScore, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """The percentile interval of a score over draws of its images; None if the score was not computed.

    Args:
        score: of any metric.
        level: share of the draws inside the interval.
        resamples: number of draws.
        seed: the same seed gives the same interval.
    """
    if score.value is None:
        return None
    values = np.concatenate([score.resampled(draws) for draws in _draws(score, resamples, seed)])
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def compare(
    first: MetricScore, second: MetricScore, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison | None:
    """A test whether the second system is better or worse than the first; None if either score was not computed.

    The interval is that of the difference when both are scored on the same draw of images. The p-value is the share of
    draws whose difference lies at least as far from the mean difference as the measured difference lies from zero.

    Args:
        first, second: the same metric on the same images in the same order.
        resamples: number of draws.
        seed: the same seed gives the same answer.
    """
    if first.value is None or second.value is None:
        return None
    measured = second.value - first.value
    differences = np.concatenate(
        [second.resampled(draws) - first.resampled(draws) for draws in _draws(first, resamples, seed)]
    )
    as_far = np.abs(differences - differences.mean()) >= abs(measured) - 1e-12
    low, high = np.quantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Comparison(measured, float(low), float(high), float((as_far.sum() + 1) / (resamples + 1)))


def _draws(score: MetricScore, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """(at most _ROWS, images) blocks: how often each draw takes each image."""
    assert score.statistics is not None
    images = len(score.statistics)
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, _ROWS):
        rows = min(_ROWS, resamples - start)
        yield generator.multinomial(images, np.full(images, 1 / images), size=rows).astype(float)
