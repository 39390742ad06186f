"""How sure a score is: bootstrap intervals, and a paired test between two systems.

Both draw the images anew with replacement (Koehn 2004, "Statistical Significance Tests for Machine Translation
Evaluation"). A score keeps what each image adds to it, so a draw costs one row of a matrix product. What does not
change with the draw: the references' n-gram weights in CIDEr.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from caption.errors import UserError
from caption.metrics.score import Score, Scores

RESAMPLES = 1000
LEVEL = 0.95
_ROWS = 100  # draws at a time: 100 x 40,000 images are 32 MB


class Interval(NamedTuple):
    """Between `low` and `high` lies the score in `level` of all draws."""

    low: float
    high: float
    level: float


class Comparison(NamedTuple):
    """One metric of two systems on the same images."""

    difference: float
    """Second less first."""
    low: float
    """Bounds of the difference in 95 % of all draws."""
    high: float
    p_value: float
    """Two-sided: how often chance alone would put the systems this far apart."""


def confidence_interval(
    score: Score, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """The percentile interval of a score over draws of its images; None for a score that was not computed.

    Args:
        score: of any metric.
        level: share of the draws inside.
        resamples: number of draws.
        seed: the same seed gives the same interval.
    """
    if score.statistics is None or score.combine is None:
        return None
    values = np.concatenate(
        [score.combine(draws @ score.statistics) for draws in _draws(len(score.statistics), resamples, seed)]
    )
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level)


def compare(first: Score, second: Score, resamples: int = RESAMPLES, seed: int = 0) -> Comparison | None:
    """Is the second system really better or worse than the first? None where either was not computed.

    The interval is that of the difference when both are scored on the same draw of images. The p-value asks how
    often the difference, were it zero on average, would stray from zero by as much as was measured.

    Args:
        first, second: the same metric on the same images in the same order, see `compare_all`.
        resamples: number of draws.
        seed: the same seed gives the same answer.
    """
    if (
        first.statistics is None
        or second.statistics is None
        or first.combine is None
        or second.combine is None
    ):
        return None
    differences = np.concatenate(
        [
            second.combine(draws @ second.statistics) - first.combine(draws @ first.statistics)
            for draws in _draws(len(first.statistics), resamples, seed)
        ]
    )
    measured = float(
        second.combine(second.statistics.sum(axis=0)) - first.combine(first.statistics.sum(axis=0))
    )
    astray = np.abs(differences - differences.mean()) >= abs(measured) - 1e-12
    low, high = np.quantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Comparison(measured, float(low), float(high), float((astray.sum() + 1) / (resamples + 1)))


def compare_all(
    first: Scores, second: Scores, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Comparison | None]:
    """`compare` for every metric that both systems have.

    Raises:
        UserError: the two were not scored on the same images.
    """
    if first.ids != second.ids:
        raise UserError(
            "two systems are compared on the same images, but these were scored on different ones."
        )
    return {
        name: compare(first.score(name), second.score(name), resamples, seed)
        for name in first
        if name in second
    }


def _draws(images: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """(at most _ROWS, images) blocks: how often each draw takes each image."""
    generator = np.random.default_rng(seed)
    chances = np.full(images, 1 / images)
    for start in range(0, resamples, _ROWS):
        rows = min(_ROWS, resamples - start)
        yield generator.multinomial(images, chances, size=rows).astype(float)
