"""What every measurement of single words has in common: which words, of which images, and how to take some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Measured = TypeVar("Measured", bound="PerWord")


@dataclass(frozen=True)
class PerWord:
    """N words. In subclasses, arrays, and arrays by name, have the N words in front; other types are not per word."""

    words: tuple[str, ...]
    """The N words."""
    images: np.ndarray
    """(N,) int64: which of the photos each was said of, counted from 0; for intervals (`caption.analysis.means`)."""

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    def only(self: Measured, words: Collection[str]) -> Measured:
        """The numbers of some words alone: of one class, say."""
        chosen = np.array([word in words for word in self.words], dtype=bool)

        def some(entry: Any) -> Any:
            if isinstance(entry, Mapping):
                return {name: some(values) for name, values in entry.items()}
            return entry[chosen] if isinstance(entry, np.ndarray) else entry

        kept = {field.name: some(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **{**kept, "words": tuple(w for w in self.words if w in words)})
