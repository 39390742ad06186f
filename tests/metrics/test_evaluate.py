"""`evaluate`, scores as objects, and BLEU under several conventions."""

from __future__ import annotations

import json

import pytest

from caption.errors import UserError
from caption.metrics import References, evaluate
from caption.metrics.evaluation import CONVENTIONS, bleu_conventions
from caption.text.tokenizer import get_tokenizer

REFERENCES = {1: ["A dog runs.", "The dog is running."], 2: ["Two cats sleep.", "Cats, asleep."]}
CANDIDATES = {1: "a dog runs", 2: "two cats"}


def test_scores_are_read_by_name():
    scores = evaluate(CANDIDATES, REFERENCES)
    assert list(scores) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr", "ROUGE-L"]
    assert 0 < scores["BLEU-1"] <= 1
    assert scores.score("ROUGE-L").value == scores["ROUGE-L"]
    assert set(scores.score("CIDEr").per_image) == {1, 2}
    assert "BLEU-1" in scores
    with pytest.raises(KeyError):
        scores["METEOR"]
    plain = json.loads(json.dumps(scores.to_dict()))
    assert plain == {"scores": dict(scores), "signature": scores.signature}


def test_the_signature_is_the_protocol():
    scores = evaluate(CANDIDATES, REFERENCES, protocol={"split": "test", "beam": 3, "odd": "a|b:c"})
    start, _, version = scores.signature.rpartition("|v:")
    assert start == "tok:ptb-1|case:lower|punct:removed|refs:2|bp:on|n:2|cider:D|split:test|beam:3|odd:a/b=c"
    assert version
    plain = evaluate(CANDIDATES, {1: ["a"], 2: ["b", "c", "d"]}, "none", ["CIDEr-plain"]).signature
    assert plain.startswith("tok:none-1|case:kept|punct:kept|refs:1-3|bp:on|n:2|v:")


def test_case_and_punctuation_do_not_matter_under_ptb():
    assert dict(evaluate({1: "A DOG RUNS!", 2: "Two, cats."}, REFERENCES)) == dict(
        evaluate(CANDIDATES, REFERENCES)
    )
    assert evaluate({1: "A DOG RUNS!", 2: "Two, cats."}, REFERENCES, "none")["BLEU-1"] < 0.5


def test_references_can_be_prepared_once():
    prepared = References(REFERENCES, get_tokenizer("ptb"))
    assert evaluate(CANDIDATES, prepared).to_dict() == evaluate(CANDIDATES, REFERENCES).to_dict()
    assert prepared.only([2]).ids == [2]
    with pytest.raises(UserError, match="no candidate belongs"):
        prepared.only([3])


def test_text_names_scores_not_computed_and_the_reason(monkeypatch):
    monkeypatch.setenv("PATH", "")
    scores = evaluate(CANDIDATES, REFERENCES, metrics=["ROUGE-L", "METEOR-1.5", "SPICE"])
    assert scores["METEOR-1.5"] is None
    assert scores["SPICE"] is None
    assert "Java is missing" in scores.reasons["METEOR-1.5"]
    assert "not computed: Java is missing" in str(scores)
    assert scores.to_dict()["reasons"].keys() == {"METEOR-1.5", "SPICE"}
    assert scores.score("METEOR-1.5").statistics is None


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        ({1: "a"}, REFERENCES, "1 of the 2 images have no candidate: 2"),
        ({1: "a", 2: "b", 3: "c"}, REFERENCES, "1 candidates have no references: 3"),
        ({"1": "a", "2": "b"}, REFERENCES, "by number, the other by text"),
        ({7: "a", 8: "b"}, REFERENCES, "Do the two files belong together"),
        ({1: "a", 2: None}, REFERENCES, "candidate of 2 is not a text"),
        ({}, {}, "no references"),
        ({1: "a"}, {1: []}, "have no reference: 1"),
        ({1: "a"}, {1: "a dog"}, "not a list"),
        ({1: "a"}, {1: ["a", 5]}, "reference of 1 is not a text"),
        (dict.fromkeys(range(9), "a"), {9: ["a"]}, "0, 1, 2 and 6 more"),
    ],
)
def test_mismatches_are_named(candidates, references, message):
    with pytest.raises(UserError, match=message):
        evaluate(candidates, references)


def test_unknown_metrics_are_answered_with_the_known_ones():
    with pytest.raises(UserError, match=r"no metric 'METEOR'.*METEOR-nltk, METEOR-1.5"):
        evaluate(CANDIDATES, REFERENCES, metrics=["METEOR"])


PUNCTUATED = {1: ["A dog runs.", "The dog, the brown one, is running."], 2: ["Two cats sleep on a mat."]}
SPACED = {1: "a dog runs .", 2: "two cats"}


def test_the_first_convention_is_coco_captions():
    table = bleu_conventions(SPACED, PUNCTUATED)
    assert list(table) == list(CONVENTIONS)
    assert len({scores.signature for scores in table.values()}) == len(CONVENTIONS)
    assert dict(table["coco-caption"]) == dict(evaluate(SPACED, PUNCTUATED, metrics=["BLEU"]))


def test_each_convention_moves_the_score_the_way_it_must():
    table = bleu_conventions(SPACED, PUNCTUATED)
    bleu = {name: scores["BLEU-1"] for name, scores in table.items()}
    assert bleu["without brevity penalty"] == pytest.approx(1)  # short, but all words right
    assert bleu["coco-caption"] < 1
    assert bleu["case kept"] < bleu["coco-caption"]  # "a" is not "A"
    assert bleu["case and punctuation kept"] < bleu["punctuation kept"]
    assert bleu["punctuation kept"] != bleu["coco-caption"]
