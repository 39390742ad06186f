"""CIDEr (Vedantam et al. 2015, arXiv 1411.5726): agreement with the references, most of all in rare n-grams.

    g_n(s) = ( count of ω in s · log(N / images whose references have ω) )  over all n-grams ω           (eq. 1)
    CIDEr_n = 1/m Σ_j cos(g_n(c), g_n(s_j)) ,  CIDEr = 1/4 Σ_n CIDEr_n                                (eqs. 2, 3)
    CIDEr-D_n = 10/m Σ_j e^(−(l(c) − l(s_j))² / 2σ²) · min(g_n(c), g_n(s_j)) · g_n(s_j) / |g_n(c)| |g_n(s_j)|
                                                                                                         (eq. 4)
There are three names for two measures:

* "CIDEr" is the number that coco-caption, and nearly every paper since 2015, calls CIDEr. It is CIDEr-D, eq. 4:
  clipped, with a penalty for a different length. Signatures say so ("cider:D").
* "CIDEr-D" is the same number under its own name.
* "CIDEr-plain" is eqs. 2 and 3, neither clipped nor penalised for length, times 10 as in its authors' code. Words are
  not stemmed: the authors' code does not stem either, although their text says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from caption.metrics.corpus import Corpus
from caption.metrics.score import MetricScore
from caption.text.ngrams import MAX_ORDER, Counts, Words, alike, ngram_counts

SIGMA = 6.0
ALIKE = (
    "0 for any captions, because there is one image, or all images have the same references: CIDEr weighs n-grams by "
    "the share of images that lack them"
)
"""Why a CIDEr is meaningless."""
VARIANTS = ("CIDEr", "CIDEr-D", "CIDEr-plain")


class Rarity(NamedTuple):
    """The weights of n-grams."""

    frequency: dict[str, int]
    """The number of images whose references contain each n-gram."""
    squares: list[float]
    """log(N / frequency)², by frequency; 0 counts as 1. Products always contain the square."""


class Vector(NamedTuple):
    """One sentence: its n-grams and the Euclidean norm of g_n, for each length n of the n-grams."""

    counts: list[Counts]
    norms: list[float]
    length: int
    """In words."""


def cider(corpus: Corpus, variants: tuple[str, ...] = ("CIDEr",)) -> list[MetricScore]:
    """CIDEr in the given variants, each between 0 and 10.

    The weights come from the references of this corpus (N is its number of images). Values of different sets of images
    are therefore not comparable, and a single image always scores 0, since log N = 0.
    """
    rarity = _rarity(corpus.references.counts, len(corpus.ids))
    similarities: dict[str, list[float]] = {variant: [] for variant in variants}
    for counts, group in zip(corpus.counts, corpus.references.counts, strict=True):
        candidate = _vector(counts, rarity)
        references = [_vector(reference, rarity) for reference in group]
        for variant, values in similarities.items():
            total = sum(_similarity(candidate, reference, rarity, variant) for reference in references)
            values.append(10.0 * total / len(references))
    scores = [MetricScore.from_mean(variant, corpus.ids, values) for variant, values in similarities.items()]
    reason = ALIKE if alike(corpus.references.words) else None
    return [replace(score, reason=reason) for score in scores]


class CiderD:
    """CIDEr-D of single sentences, with the weights of n-grams from a fixed set of references: a training reward.

    Args:
        references: for each image, its captions as lists of words. N-grams that are not in them have the weight of
            n-grams of a single image.
    """

    def __init__(self, references: Sequence[Sequence[Words]]) -> None:
        self._rarity = _rarity(
            ([ngram_counts(words) for words in group] for group in references), len(references)
        )

    def __call__(self, candidates: Sequence[Words], references: Sequence[Words]) -> list[float]:
        """CIDEr-D of each candidate of an image against the image's references, between 0 and 10."""
        vectors = [_vector(ngram_counts(words), self._rarity) for words in references]
        scores = []
        for words in candidates:
            candidate = _vector(ngram_counts(words), self._rarity)
            total = sum(_similarity(candidate, reference, self._rarity, "CIDEr-D") for reference in vectors)
            scores.append(10.0 * total / len(vectors))
        return scores


def _rarity(groups: Iterable[Sequence[list[Counts]]], images: int) -> Rarity:
    """The weights of n-grams, from the n-gram counts of each image's references."""
    frequency: dict[str, int] = {}
    for group in groups:
        for ngram in set().union(*(counted for counts in group for counted in counts)):
            frequency[ngram] = frequency.get(ngram, 0) + 1
    squares = [(math.log(images) - math.log(max(1, count))) ** 2 for count in range(images + 1)]
    return Rarity(frequency, squares)


def _vector(counts: list[Counts], rarity: Rarity) -> Vector:
    frequency, squares = rarity
    norms = [
        math.sqrt(sum([count * count * squares[frequency.get(ngram, 0)] for ngram, count in counted.items()]))
        for counted in counts
    ]
    return Vector(counts, norms, sum(counts[0].values()))


def _similarity(candidate: Vector, reference: Vector, rarity: Rarity, variant: str) -> float:
    """Mean over n-gram lengths of the (clipped) cosine, times the penalty for a different length."""
    clipped = variant != "CIDEr-plain"
    total = 0.0
    for order in range(MAX_ORDER):
        counts, reference_counts = candidate.counts[order], reference.counts[order]
        # In the order of the sentence, not of a set, so that sums do not vary from run to run.
        shared = [ngram for ngram in counts if ngram in reference_counts]
        if not shared:
            break  # then they share no longer n-grams either
        product = 0.0
        for ngram in shared:
            count = min(counts[ngram], reference_counts[ngram]) if clipped else counts[ngram]
            product += count * reference_counts[ngram] * rarity.squares[rarity.frequency.get(ngram, 0)]
        if product:
            total += product / (candidate.norms[order] * reference.norms[order])
    if clipped and total:
        total *= math.exp(-((candidate.length - reference.length) ** 2) / (2 * SIGMA**2))
    return total / MAX_ORDER
