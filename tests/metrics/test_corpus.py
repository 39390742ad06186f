"""Counts of n-grams are the same with and without the cache, and equal words share memory."""

from __future__ import annotations

import pytest

from caption.metrics import corpus
from caption.metrics.corpus import Corpus, References, ngram_counts
from caption.text.tokenizer import get_tokenizer

TEXTS = {1: ["a b a b", "c"], 2: ["b a", "a b c d e"], 3: ["d"]}
FOUND = {1: "a b c", 2: "a b c d", 3: "e"}


def made() -> Corpus:
    return Corpus(FOUND, References(TEXTS, get_tokenizer("none")))


@pytest.fixture(params=["kept", "made anew"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "made anew":
        monkeypatch.setattr(corpus, "MAX_CACHED", 2)
    return request.param == "kept"


def test_counts(kept: bool):
    found = made()
    for _ in range(2):
        assert list(found.counts) == [ngram_counts(text.split()) for text in FOUND.values()]
        groups = [[ngram_counts(text.split()) for text in group] for group in TEXTS.values()]
        assert list(found.references.counts) == groups
    assert (found.counts is found.counts) == kept
    assert (found.references.counts is found.references.counts) == kept


def test_equal_words_are_one_object():
    # Longer than a letter, because Python shares single letters.
    texts = {1: ["blue dog", "dog"], 2: ["dog blue"]}
    found = Corpus({1: "red dog", 2: "dog"}, References(texts, get_tokenizer("none")))
    references, candidates = found.references.words, found.words
    assert references[0][0][1] is references[0][1][0] is references[1][0][0]
    assert references[0][0][0] is references[1][0][1]
    assert candidates[0][1] is candidates[1][0]
