"""BLEU on captions small enough to count by hand."""

from __future__ import annotations

import math
import random

import pytest
from nltk.translate import bleu_score

from caption.metrics import evaluate
from caption.metrics.bleu import sentence_bleu

REFERENCES = {1: ["the cat sat down", "a cat"], 2: ["a dog runs fast"]}


def bleu(candidates, references=None, **options):
    return evaluate(candidates, references or REFERENCES, "none", ["BLEU"], **options)


def test_all_words_right_but_short():
    # c = 3 + 2; r = 2 (3 is as far from 4 as from 2: the shorter) + 4. Matches 5/5, 3/3, 1/1, no 4-gram.
    scores = bleu({1: "the cat sat", 2: "a dog"})
    penalty = math.exp(1 - 6 / 5)
    assert [scores[f"BLEU-{n}"] for n in (1, 2, 3)] == pytest.approx([penalty] * 3)
    assert scores.score("BLEU-1").per_image == pytest.approx({1: 1, 2: math.exp(-1)})
    long = bleu({1: "the cat sat", 2: "a dog"}, brevity_penalty=False)
    assert long["BLEU-1"] == pytest.approx(1)
    assert "|bp:off|" in long.signature
    assert scores["BLEU-4"] == pytest.approx(penalty * 1e-6**0.25)  # coco-caption's 1e-15 / 1e-9 for 0 / 0


def test_repeated_words_count_as_often_as_in_one_reference():
    scores = bleu({1: "the the the the"}, {1: ["the cat saw the dog", "the end"]})
    assert scores["BLEU-1"] == pytest.approx(2 / 4 * math.exp(1 - 5 / 4))


def test_counts_are_summed_over_images_before_dividing():
    # 1-grams: 1 of 1 and 1 of 3 match: 2/4, not the mean of 1 and 1/3.
    scores = bleu({1: "cat", 2: "a b c"}, {1: ["cat"], 2: ["a x y"]})
    assert scores["BLEU-1"] == pytest.approx(0.5)
    assert scores.score("BLEU-1").per_image == pytest.approx({1: 1.0, 2: 1 / 3})
    # Orders are joined by the geometric mean: "a b x d" has 3 of 4 words and 1 of 3 pairs.
    assert bleu({1: "a b x d"}, {1: ["a b c d"]})["BLEU-2"] == pytest.approx(math.sqrt(3 / 4 * 1 / 3))


def test_an_empty_candidate_scores_nothing_and_breaks_nothing():
    assert list(bleu({1: "", 2: ""}).values()) == pytest.approx([0] * 4)
    assert bleu({1: "", 2: "a dog runs fast"}).score("BLEU-1").per_image[1] == pytest.approx(0)


def test_a_sentence_alone_is_smoothed_as_in_nltk():
    # Matches 3 of 4, 1 of 3, 0 of 2, 0 of 1; c = 4, r = 5.
    (found,) = sentence_bleu([["a", "b", "x", "d"]], [["a", "b", "c", "d", "e"]])
    assert found == pytest.approx(math.exp(1 - 5 / 4) * (3 / 4 * 2 / 4 * 1 / 3 * 1 / 2) ** 0.25)
    assert sentence_bleu([["x"], []], [["a", "b"]]) == [0, 0]
    draw = random.Random(0)
    smoothing = bleu_score.SmoothingFunction().method2
    for _ in range(100):
        candidates = [draw.choices("abcd", k=draw.randint(4, 9)) for _ in range(2)]
        references = [draw.choices("abcd", k=draw.randint(1, 9)) for _ in range(3)]
        expected = [
            bleu_score.sentence_bleu(references, words, smoothing_function=smoothing) for words in candidates
        ]
        assert sentence_bleu(candidates, references) == pytest.approx(expected)
