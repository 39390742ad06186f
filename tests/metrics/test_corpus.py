"""Counts of n-grams are the same with and without the cache, and equal words share memory."""

from __future__ import annotations

import pytest

from caption.metrics import corpus
from caption.metrics.corpus import Corpus, References
from caption.text.ngrams import ngram_counts
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
    assert (found.references.counts is found.references.counts) == kept
