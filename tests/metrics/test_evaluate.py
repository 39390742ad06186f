"""`evaluate`, scores as objects, and BLEU under several conventions."""

from __future__ import annotations

import pytest

from caption.core.errors import UserError
from caption.metrics import References, corpus, evaluate
from caption.metrics.evaluation import CONVENTIONS, bleu_conventions
from caption.text.tokenizer import get_tokenizer

REFERENCES = {1: ["A dog runs.", "The dog is running."], 2: ["Two cats sleep.", "Cats, asleep."]}
CANDIDATES = {1: "a dog runs", 2: "two cats"}


def test_the_signature_is_the_protocol():
    scores = evaluate(CANDIDATES, REFERENCES, protocol={"split": "test", "beam": 3, "odd": "a|b:c"})
    assert list(scores) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr", "ROUGE-L"]
    start, _, version = scores.signature.rpartition("|v:")
    assert start == "tok:ptb-1|case:lower|punct:removed|refs:2|bp:on|n:2|cider:D|split:test|beam:3|odd:a/b=c"
    assert version
    plain = evaluate(CANDIDATES, {1: ["a"], 2: ["b", "c", "d"]}, "none", ["CIDEr-plain"]).signature
    assert plain.startswith("tok:none-1|case:kept|punct:kept|refs:1-3|bp:on|n:2|v:")


def test_references_can_be_prepared_once_and_their_counts_are_kept_if_there_are_few(monkeypatch):
    expected, prepared = evaluate(CANDIDATES, REFERENCES), References(REFERENCES, get_tokenizer("ptb"))
    assert evaluate(CANDIDATES, prepared).to_dict() == expected.to_dict()
    assert prepared.counts is prepared.counts
    words = References(REFERENCES, get_tokenizer("none"))
    assert evaluate(CANDIDATES, words).to_dict() == evaluate(CANDIDATES, REFERENCES, "none").to_dict()
    assert "tok:ptb-1|reftok:none-1|" in evaluate(CANDIDATES, words, "ptb").signature
    monkeypatch.setattr(corpus, "MAX_CACHED", 2)
    counted_again = References(REFERENCES, get_tokenizer("ptb"))
    assert evaluate(CANDIDATES, counted_again).to_dict() == expected.to_dict()
    assert counted_again.counts is not counted_again.counts
    assert prepared.only([2]).ids == [2]
    with pytest.raises(UserError, match="no candidate belongs"):
        prepared.only([3])


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        ({1: "a"}, REFERENCES, "1 of 2 images has no candidate: 2"),
        ({1: "a", 2: "b", 3: "c"}, REFERENCES, "1 candidate has no references: 3"),
        ({"1": "a", "2": "b"}, REFERENCES, "by number, the other by text"),
        ({7: "a", 8: "b"}, REFERENCES, "Do the two files belong together"),
        ({1: "a", 2: None}, REFERENCES, "candidate of 2 is not a text"),
        ({}, {}, "no references"),
        ({1: "a"}, {1: []}, "1 image has no reference: 1"),
        ({1: "a"}, {1: "a dog"}, "not a list"),
        ({1: "a"}, {1: ["a", 5]}, "reference of 1 is not a text"),
        (dict.fromkeys(range(9), "a"), {9: ["a"]}, "0, 1, 2 and 6 more"),
    ],
)
def test_mismatches_are_named(candidates, references, message):
    with pytest.raises(UserError, match=message):
        evaluate(candidates, references)


PUNCTUATED = {1: ["A dog runs.", "The dog, the brown one, is running."], 2: ["Two cats sleep on a mat."]}
SPACED = {1: "a dog runs .", 2: "two cats"}


def test_each_convention_moves_the_score_the_way_it_must():
    table = bleu_conventions(SPACED, PUNCTUATED)
    assert len({scores.signature for scores in table.values()}) == len(CONVENTIONS)
    assert dict(table["coco-caption"]) == dict(evaluate(SPACED, PUNCTUATED, metrics=["BLEU"]))
    bleu = {name: scores["BLEU-1"] for name, scores in table.items()}
    assert bleu["without brevity penalty"] == pytest.approx(1)  # short, but all words right
    assert bleu["coco-caption"] < 1
    assert bleu["case kept"] < bleu["coco-caption"]  # "a" is not "A"
    assert bleu["case and punctuation kept"] < bleu["punctuation kept"]
    assert bleu["punctuation kept"] != bleu["coco-caption"]
