"""Measurements of single words; `caption.metrics.significance.estimate` gives their means with intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from caption.analysis.table import AnalysisTable, Tabled, Value, numbers
from caption.core.errors import UserError, optional_package
from caption.core.tensor_tree import TensorTree, combine, map_tensors
from caption.metrics.significance import Estimate, estimate

if TYPE_CHECKING:
    from pandas import DataFrame

    from caption.analysis.replay import Sentences, Step

Measured = TypeVar("Measured", bound="PerWord")


@dataclass(frozen=True, repr=False)
class PerWord(Tabled):
    """N words. In subclasses, arrays, and arrays by name, have the N words in front; other types are not per word.

    Its `repr` is a line with the means.
    """

    words: tuple[str, ...]
    """The N words."""
    images: np.ndarray
    """(N,) int64: the photo of each word, as its first place among the photos given, from 0; for `estimate`."""

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """(N,) by name: the columns of the table."""
        return {}

    @property
    def labels(self) -> Sequence[str]:
        """The first cell of each word's row."""
        return self.words

    def table(self) -> AnalysisTable:
        """A row for each word, of the first 30; of several photos also the means of all words, with 95 % intervals."""
        table = AnalysisTable(("word", *self.columns))
        for label, *values in list(zip(self.labels, *self.columns.values(), strict=True))[:30]:
            table.add([numbers(values)], label)
        if len(set(self.images.tolist())) > 1:
            table.add([[Value(self.mean(values), 2) for values in self.columns.values()]], f"all {len(self)}")
        return table

    def to_frame(self) -> DataFrame:
        """All words as a pandas DataFrame: `word`, `image` (its photo, from 0), and the columns of the table.

        Raises:
            UserError: pandas is not installed.
        """
        with optional_package("to_frame()", "pandas"):
            import pandas
        return pandas.DataFrame({"word": self.labels, "image": self.images, **self.columns})

    def __repr__(self) -> str:
        means = ", ".join(f"{name}: {self.mean(values).mean:.2f}" for name, values in self.columns.items())
        return f"{type(self).__name__}({len(self)} words, means {means})"

    def only(self: Measured, words: Collection[str]) -> Measured:
        """The measurements of the given words alone, such as those of one class."""
        check_words(words)
        chosen = np.array([word in words for word in self.words], dtype=bool)

        def select(entry: Any) -> Any:
            if isinstance(entry, Mapping):
                return {name: select(values) for name, values in entry.items()}
            return entry[chosen] if isinstance(entry, np.ndarray) else entry

        kept = {field.name: select(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **{**kept, "words": tuple(filter(words.__contains__, self.words))})

    def mean(self, values: np.ndarray) -> Estimate:
        """See `known_mean`."""
        return known_mean(values, self.images)


def check_words(words: Collection[str]) -> None:
    """Raise a UserError if words are one text, of which every part would be a word."""
    if isinstance(words, str):
        raise UserError(f"words are a list, such as ['red', 'blue'], not the text {words!r}")


def known_mean(values: np.ndarray, images: np.ndarray) -> Estimate:
    """The mean of the values that are not NaN, such as for a caption without another word; NaN if all are."""
    measured = ~np.isnan(values)
    return estimate(values[measured], images[measured]) if measured.any() else Estimate(*[math.nan] * 3)


class Measurements:
    """Measurements of words, collected step by step."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._images: list[int] = []
        self._values: list[TensorTree] = []

    def add(self, batch: Sentences, step: Step, values: Mapping[str, TensorTree]) -> None:
        """Add the words of a step, with values (B', ...), or several by name, for each field of the result."""
        rows = step.rows.tolist()
        self._words += [batch.captions[row].words[step.number] for row in rows]
        self._images += batch.images[step.rows].tolist()
        self._values.append(map_tensors(lambda tensor: tensor.detach().double().cpu(), values))

    def result(self, kind: type[Measured], empty: Mapping[str, Any], **fields: Any) -> Measured:
        """All words as a `PerWord`, with float64 arrays (N, ...).

        Args:
            kind: its class.
            empty: the measured fields of a result that has no words.
            fields: those that are not per word.
        """
        values = combine(_joined, self._values) if self._values else empty
        images = np.array(self._images, dtype=np.int64)
        return kind(tuple(self._words), images, **values, **fields)


def _joined(parts: list[Tensor]) -> Any:
    if len({part.shape[1:] for part in parts}) > 1:
        raise UserError(
            "the photos have different grids, and this counts their regions: give photos of one grid at a time"
        )
    return torch.cat(parts).numpy()
