"""BLEU (Papineni et al. 2002), with the choices of coco-caption.

    p_n = Σ clipped matches of n-grams / Σ n-grams of the candidates        over the whole corpus
    BLEU-N = BP · (p_1 · … · p_N)^(1/N) ,  BP = min(1, exp(1 − r/c))

c is the total length of the candidates. r is the total length of one reference per image: the one whose length is
closest to the candidate's, the shorter one if two are equally close.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from caption.metrics.corpus import Corpus
from caption.metrics.score import MetricScore
from caption.text.ngrams import MAX_ORDER, Counts, Words, ngram_counts

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
    references = corpus.references
    sentences = zip(corpus.words, corpus.counts, references.words, references.counts, strict=True)
    statistics = np.array([_statistics(*sentence) for sentence in sentences], dtype=float)
    scores = []
    for order in range(1, MAX_ORDER + 1):
        combine = partial(corpus_bleu, order=order, brevity_penalty=brevity_penalty)
        scores.append(MetricScore.from_statistics(f"BLEU-{order}", corpus.ids, statistics, combine))
    return scores


def corpus_bleu(statistics: np.ndarray, order: int, brevity_penalty: bool) -> np.ndarray:
    """BLEU-`order` (...) of statistics (..., 2 + 2·4): c, r, the matches and the n-grams of each length."""
    lengths, closest = statistics[..., 0], statistics[..., 1]
    matches = statistics[..., 2 : 2 + order] + TINY
    ngrams = statistics[..., 2 + MAX_ORDER : 2 + MAX_ORDER + order] + SMALL
    precision = np.prod(matches / ngrams, axis=-1) ** (1 / order)
    if not brevity_penalty:
        return precision
    ratio = (lengths + TINY) / (closest + SMALL)
    return precision * np.exp(np.minimum(0.0, 1 - 1 / ratio))


def sentence_bleu(candidates: Sequence[Words], references: Sequence[Words]) -> list[float]:
    """BLEU-4 of each single candidate of an image, smoothed for use as a reward: most share no 4-gram with a reference.

    For n > 1, p_n = (matches + 1) / (n-grams + 1) (Lin and Och 2004, "ORANGE", section 4). BP as above.

    Args:
        candidates: the words of each candidate.
        references: the words of each reference of the image, at least one.
    """
    references, counts = list(references), [ngram_counts(reference) for reference in references]
    smoothing = np.arange(MAX_ORDER) > 0
    scores = []
    for words in candidates:
        length, closest, *counted = _statistics(words, ngram_counts(words), references, counts)
        if not length:
            scores.append(0.0)
            continue
        matches, ngrams = np.array(counted, dtype=float).reshape(2, MAX_ORDER)
        precision = np.prod((matches + smoothing) / (ngrams + smoothing)) ** (1 / MAX_ORDER)
        scores.append(float(precision * np.exp(min(0.0, 1 - closest / length))))
    return scores


def _statistics(
    words: Words, counts: list[Counts], references: list[Words], reference_counts: list[list[Counts]]
) -> list[int]:
    length = len(words)
    closest = min(map(len, references), key=lambda total: (abs(total - length), total))
    matches = [
        _clipped_matches(counts[order], [reference[order] for reference in reference_counts])
        for order in range(MAX_ORDER)
    ]
    return [length, closest, *matches, *(max(0, length - order) for order in range(MAX_ORDER))]


def _clipped_matches(counts: Counts, references: list[Counts]) -> int:
    """Number of matches. An n-gram matches at most as often as it occurs in the reference that has it most often."""
    return sum(
        min(count, max(reference.get(ngram, 0) for reference in references))
        for ngram, count in counts.items()
    )
