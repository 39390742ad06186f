"""BLEU (Papineni et al. 2002), with the choices of coco-caption.

    p_n = Σ clipped matches of n-grams / Σ n-grams of the candidates        over the whole corpus
    BLEU-N = BP · (p_1 · … · p_N)^(1/N) ,  BP = min(1, exp(1 − r/c))

c is the total length of the candidates. r is the total length of one reference per image: the one whose length is
closest to the candidate's, the shorter one if two are equally close.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from caption.metrics.corpus import LONGEST, Corpus, Counts
from caption.metrics.score import MetricScore

# coco-caption's guards against 0/0. They affect its numbers: the BLEU of a single image without a match of some length
# is tiny, not zero.
TINY = 1e-15
SMALL = 1e-9


def bleu(corpus: Corpus, brevity_penalty: bool = True) -> list[MetricScore]:
    """BLEU-1 to BLEU-4 as fractions.

    Args:
        corpus: candidates and references.
        brevity_penalty: False leaves BP out, as papers before 2015 did; short captions then score higher.
    """
    statistics = np.array(
        [
            _statistics(len(words), counts, [len(reference) for reference in references], reference_counts)
            for words, counts, references, reference_counts in zip(
                corpus.words,
                corpus.counts,
                corpus.references.words,
                corpus.references.counts,
                strict=True,
            )
        ],
        dtype=float,
    )
    scores = []
    for order in range(1, LONGEST + 1):
        combine = partial(combined, order=order, brevity_penalty=brevity_penalty)
        per_image = [float(value) for value in combine(statistics)]
        scores.append(
            MetricScore.from_statistics(f"BLEU-{order}", corpus.ids, per_image, statistics, combine)
        )
    return scores


def combined(statistics: np.ndarray, order: int, brevity_penalty: bool) -> np.ndarray:
    """BLEU-`order` (...) of statistics (..., 2 + 2·4): c, r, the matches and the n-grams of each length."""
    lengths, closest = statistics[..., 0], statistics[..., 1]
    matches = statistics[..., 2 : 2 + order] + TINY
    ngrams = statistics[..., 2 + LONGEST : 2 + LONGEST + order] + SMALL
    precision = np.prod(matches / ngrams, axis=-1) ** (1 / order)
    if not brevity_penalty:
        return precision
    ratio = (lengths + TINY) / (closest + SMALL)
    return precision * np.exp(np.minimum(0.0, 1 - 1 / ratio))


def _statistics(
    length: int, counts: list[Counts], reference_lengths: list[int], references: list[list[Counts]]
) -> list[int]:
    closest = min(reference_lengths, key=lambda other: (abs(other - length), other))
    matches = [
        _clipped_matches(counts[order], [reference[order] for reference in references])
        for order in range(LONGEST)
    ]
    ngrams = [max(0, length - order) for order in range(LONGEST)]
    return [length, closest, *matches, *ngrams]


def _clipped_matches(counts: Counts, references: list[Counts]) -> int:
    """The matches; an n-gram matches at most as often as it occurs in the reference that has it most often."""
    return sum(
        min(count, max(reference.get(ngram, 0) for reference in references))
        for ngram, count in counts.items()
    )
