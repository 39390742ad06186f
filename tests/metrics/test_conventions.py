"""BLEU under several conventions."""

from __future__ import annotations

import pytest

from caption.metrics import evaluate
from caption.metrics.conventions import CONVENTIONS, bleu_conventions

REFERENCES = {1: ["A dog runs.", "The dog, the brown one, is running."], 2: ["Two cats sleep on a mat."]}
CANDIDATES = {1: "a dog runs .", 2: "two cats"}


def test_the_first_is_coco_captions():
    table = bleu_conventions(CANDIDATES, REFERENCES)
    assert list(table) == [convention.name for convention in CONVENTIONS]
    assert dict(table["coco-caption"]) == dict(evaluate(CANDIDATES, REFERENCES, metrics=["BLEU"]))


def test_each_moves_the_score_the_way_it_must():
    table = bleu_conventions(CANDIDATES, REFERENCES)
    bleu = {name: scores["BLEU-1"] for name, scores in table.items()}
    assert bleu["without brevity penalty"] == pytest.approx(1)  # short, but all words right
    assert bleu["coco-caption"] < 1
    assert bleu["case kept"] < bleu["coco-caption"]  # "a" is not "A"
    assert bleu["case and punctuation kept"] < bleu["punctuation kept"]
    assert bleu["punctuation kept"] != bleu["coco-caption"]


def test_signatures_tell_them_apart():
    table = bleu_conventions(CANDIDATES, REFERENCES, {"split": "test"})
    signatures = [scores.signature for scores in table.values()]
    assert len(set(signatures)) == len(CONVENTIONS)
    assert all("|split:test|" in signature for signature in signatures)
