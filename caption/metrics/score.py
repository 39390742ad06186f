"""A score as an object: its value, what it was made of, and how sure one can be of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Id = Any  # hashable
"""What names an image: a COCO number, a file name."""
Combine = Callable[[np.ndarray], np.ndarray]
"""From summed statistics (..., S) to scores (...)."""


def mean_of(sums: np.ndarray) -> np.ndarray:
    """The mean, from statistics (..., 2) that hold a sum and a count."""
    return sums[..., 0] / sums[..., 1]


@dataclass(frozen=True, eq=False)
class Score:
    """One metric over one set of images.

    Attributes:
        name: what the metric is called in tables and in JSON.
        value: a fraction (CIDEr goes to 10), or None where it was not computed.
        reason: why it was not computed, a sentence; None where it was.
        per_image: the metric of each image alone. For BLEU these do not average to `value`, which is computed
            from counts summed over all images.
        statistics: (N, S), row i holds what image i adds to the corpus score.
        combine: makes the score from rows of `statistics` summed, so that intervals and tests cost one matrix
            product.
    """

    name: str
    value: float | None
    reason: str | None = None
    per_image: dict[Id, float] = field(default_factory=dict, repr=False)
    statistics: np.ndarray | None = field(default=None, repr=False)
    combine: Combine | None = field(default=None, repr=False)

    @classmethod
    def missing(cls, name: str, reason: str) -> Score:
        """A score that could not be computed."""
        return cls(name, None, reason)

    @classmethod
    def from_statistics(
        cls,
        name: str,
        ids: Sequence[Id],
        per_image: Sequence[float],
        statistics: np.ndarray,
        combine: Combine,
    ) -> Score:
        """The score of summed statistics (N, S)."""
        value = float(combine(statistics.sum(axis=0)))
        return cls(name, value, None, dict(zip(ids, per_image, strict=True)), statistics, combine)

    @classmethod
    def from_mean(cls, name: str, ids: Sequence[Id], per_image: Sequence[float]) -> Score:
        """A score that is the mean of its values per image."""
        statistics = np.column_stack([np.asarray(per_image, dtype=float), np.ones(len(per_image))])
        return cls.from_statistics(name, ids, per_image, statistics, mean_of)


class Scores(Mapping[str, float | None]):
    """Scores by name, with the protocol that made them. `scores["BLEU-4"]` is the number.

    Args:
        scores: in the order in which they are shown.
        ids: the images, in the order of every score's statistics.
        signature: the protocol, `key:value` pairs joined by `|`.
    """

    def __init__(self, scores: Sequence[Score], ids: Sequence[Id], signature: str) -> None:
        self._scores = {score.name: score for score in scores}
        self.ids = tuple(ids)
        self.signature = signature

    def __getitem__(self, name: str) -> float | None:
        return self._scores[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    def score(self, name: str) -> Score:
        """The score called `name` with all that belongs to it; KeyError where it was not asked for."""
        return self._scores[name]

    @property
    def reasons(self) -> dict[str, str]:
        """Why, for each score that was not computed."""
        return {name: score.reason for name, score in self._scores.items() if score.reason is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON: `scores` by name (None where not computed), `signature`, and `reasons` if any."""
        plain: dict[str, Any] = {"scores": dict(self), "signature": self.signature}
        return plain | ({"reasons": self.reasons} if self.reasons else {})

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        lines = [f"{name:{width}}  {_shown(score)}" for name, score in self._scores.items()]
        return "\n".join([*lines, self.signature])

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shown(score)}" for name, score in self._scores.items())
        return f"<Scores {shown} ({self.signature})>"


def _shown(score: Score) -> str:
    return f"not computed: {score.reason}" if score.value is None else f"{score.value:.4f}"
