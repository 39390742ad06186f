"""What a caption's maps look like by themselves: how concentrated, how moving, and what they leave out.

All take weights (T, rows, cols), such as `Caption.weights`, or (T, L).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

UNSEEN = 0.1
"""Coverage below which a region counts as hardly looked at: a tenth of what the doubly stochastic term asks for."""


def entropy(weights: Any) -> np.ndarray:
    """(T,) H[α[t]] = −Σ_i α[t,i] log α[t,i] in nats: 0 for one region, log L for all alike; weights of 0 add 0."""
    flat = _flat(weights)
    logarithms = np.log(flat, out=np.zeros_like(flat), where=flat > 0)
    return -(flat * logarithms).sum(-1)


def coverage(weights: Any) -> np.ndarray:
    """(rows, cols) or (L,) Σ_t α[t,i]: how much each region was looked at, which the doubly stochastic term of eq. 14
    would have be 1."""
    return np.asarray(weights, dtype=np.float64).sum(0)


def change(weights: Any) -> np.ndarray:
    """(T − 1,) ½ Σ_i |α[t,i] − α[t−1,i]|: the share of the attention that moved between two words, 0 to 1."""
    return np.abs(np.diff(_flat(weights), axis=0)).sum(-1) / 2


def unseen(weights: Any, below: float = UNSEEN) -> float:
    """The share of regions that a whole caption hardly looked at: those whose coverage lies below `below`. NaN without
    words."""
    covered = coverage(weights)
    return float((covered < below).mean()) if len(np.asarray(weights)) else float("nan")


def measure_maps(captions: Iterable[Any]) -> dict[str, float]:
    """Means over all words of many captions, by the names they are reported under; 0 where there are no words.

    "attention_entropy" is compared with "attention_entropy_max", log L of the largest grid. "attention_unseen" is a
    mean over captions.
    """
    maps = [np.asarray(caption.weights) for caption in captions]
    entropies = [value for weights in maps for value in entropy(weights)]
    changes = [value for weights in maps for value in change(weights)]
    shares = [unseen(weights) for weights in maps if len(weights)]
    regions = max((int(np.prod(weights.shape[1:])) for weights in maps), default=1)
    return {
        "attention_entropy": float(np.mean(entropies)) if entropies else 0.0,
        "attention_entropy_max": float(np.log(regions)),
        "attention_change": float(np.mean(changes)) if changes else 0.0,
        "attention_unseen": float(np.mean(shares)) if shares else 0.0,
    }


def _flat(weights: Any) -> np.ndarray:
    maps = np.asarray(weights, dtype=np.float64)
    return maps.reshape(len(maps), int(np.prod(maps.shape[1:])))  # no -1, for captions without words
