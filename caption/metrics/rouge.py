"""ROUGE-L (Lin 2004), with the choices of coco-caption.

    P = max over references of LCS / candidate length ,  R = max over references of LCS / reference length
    ROUGE-L = (1 + β²) P R / (R + β² P) ,  β = 1.2 ,  the mean over images

LCS is the length of the longest common subsequence of words. P and R may come from different references.
"""

from __future__ import annotations

from caption.metrics.corpus import Corpus
from caption.metrics.score import MetricScore
from caption.text.ngrams import Words

BETA = 1.2


def rouge_l(corpus: Corpus) -> MetricScore:
    """ROUGE-L as a fraction; an empty candidate gets 0."""
    per_image = [
        _rouge_l(words, references)
        for words, references in zip(corpus.words, corpus.references.words, strict=True)
    ]
    return MetricScore.from_mean("ROUGE-L", corpus.ids, per_image)


def _rouge_l(candidate: Words, references: list[Words]) -> float:
    common = [(common_subsequence(candidate, reference), len(reference)) for reference in references]
    if not any(length for length, _ in common):
        return 0.0
    precision = max(length for length, _ in common) / len(candidate)
    recall = max(length / total for length, total in common if total)
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def common_subsequence(first: Words, second: Words) -> int:
    """Length of the longest common subsequence.

    A row of the usual table is kept as the bits of one integer (Crochemore et al. 2001). Filling 25,000 tables cell by
    cell would take most of the time of scoring.
    """
    # The shorter one becomes the bits: their number counts twice.
    shorter, longer = sorted((first, second), key=len)
    positions: dict[str, int] = {}
    for position, word in enumerate(shorter):
        positions[word] = positions.get(word, 0) | (1 << position)
    everything = (1 << len(shorter)) - 1
    row = everything  # a zero bit marks where the length increases by one
    for word in longer:
        matches = positions.get(word, 0) & row
        if matches:
            row = ((row + matches) | (row - matches)) & everything
    return len(shorter) - row.bit_count()
