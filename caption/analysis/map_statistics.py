"""Measures of a caption's maps alone: how concentrated they are, how much they move, which regions they leave out."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from caption.attention import map_entropy as measures
from caption.results.caption import Caption

UNSEEN = 0.1
"""A region with less coverage counts as unseen: a tenth of the target of the doubly stochastic term."""


def entropies(caption: Caption) -> np.ndarray:
    """(T,) H[α[t]] in nats: 0 for one region, log L for even weights; see `caption.attention.map_entropy.entropy`."""
    return measures.entropy(_maps(caption), caption.properties).numpy()


def changes(caption: Caption) -> np.ndarray:
    """(T − 1,) ½ Σ_i |α[t,i] − α[t−1,i]|: of weights that sum to 1, the share of the attention that moved between two
    words, 0 to 1. What moves to or from a sentinel counts half."""
    maps = _maps(caption)
    return measures.change(maps[1:], maps[:-1]).numpy()


def coverage(caption: Caption) -> np.ndarray:
    """(rows, cols) Σ_t |α[t,i]|: the attention that each region got; the doubly stochastic term (eq. 14) aims at 1."""
    return np.abs(caption.weights.astype(np.float64)).sum(0)


def unseen(caption: Caption) -> float:
    """The share of regions whose coverage by the whole caption is less than `UNSEEN`. NaN without words."""
    return float((coverage(caption) < UNSEEN).mean()) if caption.words else math.nan


def evenness(caption: Caption) -> float:
    """How even the coverage of a caption is, from 0, a single region, to 1, all alike: the entropy of the normalised
    coverage over log L (Pielou's evenness). NaN without words.

    It does not depend on the total of the coverage, so captions of different lengths can be compared. T words that look
    at one region each reach log T / log L at most.
    """
    if not caption.words:
        return math.nan
    total = torch.from_numpy(coverage(caption)).flatten()
    shares = total / total.sum().clamp_min(torch.finfo(total.dtype).tiny)
    return float(measures.entropy(shares)) / math.log(max(len(shares), 2))


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """(...,) Jensen-Shannon divergence in bits of distributions (..., L): 0 for equal ones, 1 for disjoint ones."""
    middle, ends = measures.entropy((p + q) / 2), (measures.entropy(p) + measures.entropy(q)) / 2
    return (middle - ends).clamp_min(0) / math.log(2)


def measure_maps(captions: Iterable[Caption]) -> dict[str, float]:
    """Means over all words of many captions, by the names they are reported under; 0 where there are no words.

    "attention_entropy" is compared with "attention_entropy_max", the entropy of even weights on the largest grid.
    "attention_unseen" and "attention_evenness" are means over captions.
    """
    captions = list(captions)
    outcomes = (math.prod(caption.weights.shape[1:]) + caption.properties.sentinel for caption in captions)
    return {
        "attention_entropy": _mean([value for caption in captions for value in entropies(caption)]),
        "attention_entropy_max": math.log(max(outcomes, default=1)),
        "attention_change": _mean([value for caption in captions for value in changes(caption)]),
        "attention_unseen": _mean([unseen(caption) for caption in captions if caption.words]),
        "attention_evenness": _mean([evenness(caption) for caption in captions if caption.words]),
    }


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _maps(caption: Caption) -> Tensor:
    return torch.from_numpy(caption.weights).double().flatten(1)
