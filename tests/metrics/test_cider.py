"""The three versions of CIDEr on captions small enough to count by hand."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from caption.metrics import evaluate
from caption.metrics.cider import CiderD

NAMES = ["CIDEr", "CIDEr-D", "CIDEr-plain"]


def cider(candidates, references):
    return evaluate(candidates, references, "none", NAMES)


def test_ngrams_of_all_images_have_weight_zero():
    # N = 2. "a" is in both images: weight log 1 = 0. Image 1: cosine 1 for words ("b") and for pairs ("a b"), and
    # there is nothing longer: (1 + 1 + 0 + 0) / 4. Image 2 shares "a" only.
    scores = cider({1: "a b", 2: "a b"}, {1: ["a b"], 2: ["a c"]})
    assert scores.score("CIDEr").per_image == pytest.approx({1: 5, 2: 0})
    assert scores["CIDEr"] == pytest.approx(2.5)


@pytest.mark.parametrize(
    "references", [{1: ["a b", "a c"]}, {1: ["a b"], 2: ["a b"]}, {1: ["a b", "c"], 2: ["c", "a b"]}]
)
def test_a_score_that_no_caption_can_raise_says_so(references):
    scores = cider({image: texts[0] for image, texts in references.items()}, references)
    assert scores["CIDEr"] == 0
    assert "0 for any captions" in scores.reasons["CIDEr"]
    assert not cider({1: "a b", 2: "a b"}, {1: ["a b"], 2: ["a b", "b a"]}).reasons


def test_repeating_a_word_is_clipped_and_costs_length():
    # The weight of "b" is w = log 2: candidate 2w, reference w. Clipped, min(2w, w)·w / (2w·w) = 1/2.
    scores = cider({1: "b b", 2: "c"}, {1: ["b"], 2: ["x"]})
    penalty = math.exp(-1 / 72)
    assert scores.score("CIDEr").per_image == pytest.approx({1: 10 / 4 * penalty / 2, 2: 0})
    assert scores.score("CIDEr-D").per_image == pytest.approx({1: 10 / 4 * penalty / 2, 2: 0})
    assert scores.score("CIDEr-plain").per_image == pytest.approx({1: 10 / 4, 2: 0})
    # Rarer words weigh more. N = 3. "p" is in two images (log 3/2), "q" in one (log 3).
    scores = cider({1: "p q", 2: "p", 3: "z"}, {1: ["p"], 2: ["p q"], 3: ["z"]})
    p, q = math.log(3 / 2), math.log(3)
    assert scores.score("CIDEr-plain").per_image[1] == pytest.approx(10 / 4 * p / math.hypot(p, q))


@pytest.mark.slow
def test_sums_do_not_depend_on_the_seed_of_hashing():
    code = (
        "from caption.metrics import evaluate;"
        "words = 'the a dog cat runs sits on in red blue big old'.split();"
        "line = lambda seed: ' '.join(words[(seed * k * k + k) % 12] for k in range(1, 12));"
        "r = {i: [line(i), line(i + 1), line(i + 5)] for i in range(30)};"
        f"print(repr(dict(evaluate({{i: line(i + 2) for i in r}}, r, metrics={NAMES!r}))))"
    )
    command = [sys.executable, "-c", code]
    assert len({subprocess.check_output(command, env={"PYTHONHASHSEED": seed}) for seed in "12"}) == 1


def test_a_reward_is_the_score_of_the_same_corpus():
    references = {1: ["a dog runs", "the dog"], 2: ["a cat sits on a mat"], 3: ["two men", "a man and a dog"]}
    candidates = {1: "a dog dog runs", 2: "a cat", 3: "a man and a dog"}
    expected = cider(candidates, references).score("CIDEr-D").per_image
    reward = CiderD([[text.split() for text in texts] for texts in references.values()])
    for image, texts in references.items():
        words = [text.split() for text in texts]
        found = reward([candidates[image].split(), []], words)
        assert found == pytest.approx([expected[image], 0])
    unseen = ["one", "zebra", "grazes", "alone"]
    assert reward([unseen, ["a", "dog"]], [unseen]) == pytest.approx([10, 0])
