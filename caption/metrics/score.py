"""Scores as objects: the value, the statistics behind it for confidence intervals, and the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Id = Any  # hashable
"""The name of an image: a COCO number or a file name."""
Combine = Callable[[np.ndarray], np.ndarray]
"""A function from summed statistics (..., S) to scores (...)."""


def mean_of(sums: np.ndarray) -> np.ndarray:
    """The means (...) of statistics (..., 2), each a sum and a count."""
    return sums[..., 0] / sums[..., 1]


@dataclass(frozen=True, eq=False)
class MetricScore:
    """The score of one metric over one set of images.

    Attributes:
        name: of the metric, in tables and in JSON.
        value: a fraction (CIDEr goes to 10), or None if it was not computed.
        reason: why the score was not computed, or why it is meaningless; otherwise None.
        per_image: the metric of each image alone. For BLEU these do not average to `value`, which is computed
            from counts summed over all images.
        statistics: (N, S), row i is the contribution of image i.
        combine: computes the score from the sum of rows of `statistics`, so that intervals and tests cost one matrix
            product.
    """

    name: str
    value: float | None
    reason: str | None = None
    per_image: dict[Id, float] = field(default_factory=dict, repr=False)
    statistics: np.ndarray | None = field(default=None, repr=False)
    combine: Combine | None = field(default=None, repr=False)

    @classmethod
    def from_statistics(
        cls, name: str, ids: Sequence[Id], statistics: np.ndarray, combine: Combine
    ) -> MetricScore:
        """The score of summed statistics (N, S); that of each image follows from its row."""
        value, per_image = float(combine(statistics.sum(axis=0))), combine(statistics).tolist()
        return cls(name, value, None, dict(zip(ids, per_image, strict=True)), statistics, combine)

    @classmethod
    def from_mean(cls, name: str, ids: Sequence[Id], per_image: Sequence[float]) -> MetricScore:
        """A score that is the mean of its values per image."""
        statistics = np.column_stack([np.asarray(per_image, dtype=float), np.ones(len(per_image))])
        return cls.from_statistics(name, ids, statistics, mean_of)

    def resampled(self, draws: np.ndarray) -> np.ndarray:
        """The scores (R,) of R draws of the images, (R, N): how often each draw takes each image."""
        assert self.combine is not None
        assert self.statistics is not None
        return self.combine(draws @ self.statistics)


class Scores(Mapping[str, float | None]):
    """Scores by name, with the protocol that made them. `scores["BLEU-4"]` is the number.

    Args:
        scores: in the order in which they are shown.
        ids: the images, in the order of every score's statistics.
        signature: the protocol, `key:value` pairs joined by `|`.
    """

    def __init__(self, scores: Sequence[MetricScore], ids: Sequence[Id], signature: str) -> None:
        self._scores = {score.name: score for score in scores}
        self.ids = tuple(ids)
        self.signature = signature

    def __getitem__(self, name: str) -> float | None:
        return self._scores[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    def score(self, name: str) -> MetricScore:
        """The score object called `name`. Raises a KeyError if it was not asked for."""
        return self._scores[name]

    @property
    def reasons(self) -> dict[str, str]:
        """The reason of each score that was not computed or is meaningless."""
        return {name: score.reason for name, score in self._scores.items() if score.reason is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON: `scores` by name (None if not computed), `signature`, and any `reasons`."""
        plain: dict[str, Any] = {"scores": dict(self), "signature": self.signature}
        return plain | ({"reasons": self.reasons} if self.reasons else {})

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        lines = [f"{name:{width}}  {_shown(score)}" for name, score in self._scores.items()]
        return "\n".join([*lines, self.signature])


def _shown(score: MetricScore) -> str:
    return f"not computed: {score.reason}" if score.value is None else f"{score.value:.4f}"
