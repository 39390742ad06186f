"""N-grams of sentences: what BLEU and CIDEr count."""

from __future__ import annotations

from collections.abc import Iterable

Words = list[str]
Counts = dict[str, int]
"""How often each n-gram occurs in one sentence. An n-gram is a string, its words joined by spaces: there are millions
of them, and tuples would cost the garbage collector time."""

MAX_ORDER = 4  # words in the longest n-gram, for BLEU as for CIDEr


def ngram_counts(words: Words) -> list[Counts]:
    """Counts of the 1-grams, 2-grams, ..., up to `MAX_ORDER`, of one sentence."""
    counts: list[Counts] = []
    ngrams = words
    for length in range(1, MAX_ORDER + 1):
        counted: Counts = {}
        for ngram in ngrams:
            counted[ngram] = counted.get(ngram, 0) + 1
        counts.append(counted)
        ngrams = [f"{ngram} {word}" for ngram, word in zip(ngrams, words[length:], strict=False)]
    return counts


def alike(references: Iterable[Iterable[Words]]) -> bool:
    """Whether all images have the same n-grams in their references, so that all weights are log 1.

    Args:
        references: tokenized, by image; read until two images differ.
    """
    ngrams = (
        {ngram for words in group for counts in ngram_counts(words) for ngram in counts}
        for group in references
    )
    first = next(ngrams, set())
    return all(others == first for others in ngrams)
