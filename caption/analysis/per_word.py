"""Measurements of single words; `caption.metrics.significance.estimate` gives their means with intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from caption.metrics.significance import Estimate, estimate

if TYPE_CHECKING:
    from torch import Tensor

    from caption.analysis.replay import Sentences, Step

Measured = TypeVar("Measured", bound="PerWord")


@dataclass(frozen=True)
class PerWord:
    """N words. In subclasses, arrays, and arrays by name, have the N words in front; other types are not per word."""

    words: tuple[str, ...]
    """The N words."""
    images: np.ndarray
    """(N,) int64: the photo that each word was said of, counted from 0; for `estimate`."""

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    def only(self: Measured, words: Collection[str]) -> Measured:
        """The measurements of some words alone, such as those of one class."""
        return self.where(np.array([word in words for word in self.words], dtype=bool))

    def where(self: Measured, chosen: np.ndarray) -> Measured:
        """The measurements of the words that are chosen, (N,) bool."""

        def some(entry: Any) -> Any:
            if isinstance(entry, Mapping):
                return {name: some(values) for name, values in entry.items()}
            return entry[chosen] if isinstance(entry, np.ndarray) else entry

        kept = {field.name: some(getattr(self, field.name)) for field in dataclasses.fields(self)}
        words = tuple(word for word, keep in zip(self.words, chosen, strict=True) if keep)
        return dataclasses.replace(self, **{**kept, "words": words})

    def mean(self, values: np.ndarray) -> Estimate:
        """The mean of what could be measured: a caption of one word has no other word. NaN if nothing could."""
        known = ~np.isnan(values)
        return estimate(values[known], self.images[known]) if known.any() else Estimate(*[math.nan] * 3)


class Measurements:
    """Measurements of words, collected step by step."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._images: list[int] = []
        self._values: dict[Any, list[np.ndarray]] = {}

    def add(self, batch: Sentences, step: Step, values: Mapping[Any, Tensor]) -> None:
        """Add the words of a step, with values (B', ...) by name; the same names at every call."""
        rows = step.rows.tolist()
        self._words += [batch.captions[row].words[step.number] for row in rows]
        self._images += [batch.first + row for row in rows]
        for name, measured in values.items():
            self._values.setdefault(name, []).append(measured.detach().double().cpu().numpy())

    @property
    def words(self) -> tuple[str, ...]:
        """The N words."""
        return tuple(self._words)

    @property
    def images(self) -> np.ndarray:
        """(N,) int64, see `PerWord`."""
        return np.array(self._images, dtype=np.int64)

    @property
    def values(self) -> dict[Any, np.ndarray]:
        """(N, ...) float64 by name; {} if nothing was added."""
        return {name: np.concatenate(values) for name, values in self._values.items()}

    def of(self, measure: str) -> dict[str, np.ndarray]:
        """The values whose names are pairs that begin with `measure`, by the second of the pair."""
        pairs = self._values.items()
        return {name[1]: np.concatenate(values) for name, values in pairs if name[0] == measure}
