"""Both METEOR implementations, if their requirements are installed."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.shared_data import needs_java, wordnet_is_there

from caption.metrics import evaluate
from caption.metrics.meteor import corpus_meteor

REFERENCES = {1: ["a dog runs", "the dog is running"], 2: ["two cats sleep"]}


def test_nltk_needs_wordnet():
    scores = evaluate({1: "a dog runs", 2: "birds"}, REFERENCES, metrics=["METEOR-nltk"])
    if not wordnet_is_there():
        assert scores["METEOR-nltk"] is None
        assert "nltk.downloader wordnet" in scores.reasons["METEOR-nltk"]
        pytest.skip("needs nltk's WordNet data")
    # Three matches in one chunk: F = 1, less 0.5 · (1/3)³; and nothing in common.
    assert scores.score("METEOR-nltk").per_image == pytest.approx({1: 1 - 0.5 / 27, 2: 0})


def test_version_15_from_its_counts():
    # "a cat" and "a cat sleeps": function word a, content word cat; P = 1, R = (δ + (1 − δ)) / (2 δ + (1 − δ)).
    counts = np.zeros(23)
    counts[:4] = 2, 3, 1, 1
    counts[4:8] = 1, 1, 1, 1  # same word: content in candidate and reference, function in both
    counts[20:] = 1, 2, 2  # chunks, matched words
    recall = 1 / (2 * 0.75 + 0.25)
    mean = recall / (0.85 + 0.15 * recall)
    assert corpus_meteor(counts) == pytest.approx(mean * (1 - 0.6 * (1 / 2) ** 0.2))
    nothing = np.zeros((2, 23))
    nothing[0, 1] = 3
    assert corpus_meteor(nothing).tolist() == [0, 0]


@needs_java
@pytest.mark.slow
def test_version_15_as_its_own_program_reckons():
    from pycocoevalcap.meteor.meteor import Meteor

    candidates = {1: "a dog runs", 2: "", 3: "kitties on a mats", 4: "x", 5: "a dog", 6: "dog a runs fast"}
    references = {**REFERENCES, 3: ["a kitten sat on the mat", "the cat is here"], 4: ["a b"]}
    references |= {5: ["a dog runs"], 6: ["a dog runs"]}
    lists = {image: [text] for image, text in candidates.items()}
    value, per_image = Meteor().compute_score(references, lists)
    score = evaluate(candidates, references, "none", ["METEOR-1.5"]).score("METEOR-1.5")
    assert score.value == pytest.approx(value, abs=1e-9)
    assert list(score.per_image.values()) == pytest.approx(per_image, abs=1e-9)
