"""N-grams of sentences, which BLEU and CIDEr count."""

from __future__ import annotations

from collections.abc import Iterable

Words = list[str]
Counts = dict[str, int]
"""The number of times that each n-gram occurs in a sentence. An n-gram is a string, its words joined by spaces: there
are millions of n-grams, and tuples would cost time in garbage collection."""

MAX_ORDER = 4  # words in the longest n-gram, for BLEU and for CIDEr


def ngram_counts(words: Words) -> list[Counts]:
    """Counts of the 1-grams, 2-grams, ..., up to `MAX_ORDER`, of a sentence."""
    counts: list[Counts] = []
    ngrams = words
    for length in range(1, MAX_ORDER + 1):
        length_counts: Counts = {}
        for ngram in ngrams:
            length_counts[ngram] = length_counts.get(ngram, 0) + 1
        counts.append(length_counts)
        ngrams = [f"{ngram} {word}" for ngram, word in zip(ngrams, words[length:], strict=False)]
    return counts


def alike(references: Iterable[Iterable[Words]]) -> bool:
    """Whether all images have the same n-grams in their references, so that all weights of CIDEr are log 1.

    Args:
        references: tokenized, by image; read until two images differ.
    """
    ngrams = (
        {ngram for words in group for counts in ngram_counts(words) for ngram in counts}
        for group in references
    )
    first = next(ngrams, set())
    return all(image_ngrams == first for image_ngrams in ngrams)
