"""The scores of an evaluation: their values, names and protocol."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import distributed

from caption.result import Caption
from caption.training import evaluator
from caption.training.evaluator import Answer, gather, summarise, write_evaluation, write_results


def caption(text: str, weights: Any = None, **fields: Any) -> Caption:
    words = text.split()
    weights = np.full((len(words), 2, 2), 0.25) if weights is None else np.array(weights, dtype=np.float32)
    made = {"log_prob": -1.0, "word_log_probs": np.full(len(words), -0.5), "box": (0, 0, 8, 8)}
    return Caption(text=text, words=words, weights=weights, **made | fields)


def answer(
    number: int, text: str, *references: str, nll: float = 4.0, steps: int = 2, **fields: Any
) -> Answer:
    return Answer(number, caption(text, **fields), references or (text,), nll, steps)


PROTOCOL = {"split": "test", "search": "Greedy(max_length=30)"}


# -- gathering -------------------------------------------------------------------------------------------------


def test_each_image_counts_once_however_often_it_was_answered():
    answers = [answer(1, "a cat"), answer(2, "a dog"), answer(1, "a cat")]
    assert [each.id for each in gather(answers)] == [1, 2]


def test_gathering_follows_the_order_of_the_data(monkeypatch: pytest.MonkeyPatch):
    """A distributed sampler deals five images to two processes in turn, and repeats the first to fill up."""
    mine, theirs = [answer(1, "a"), answer(3, "c"), answer(5, "e")], [answer(i, "b") for i in (2, 4, 1)]

    def all_gather_object(everyone: list[list[Answer]], given: list[Answer]) -> None:
        everyone[:] = [given, theirs]

    monkeypatch.setattr(evaluator, "process_count", lambda: 2)
    monkeypatch.setattr(distributed, "all_gather_object", all_gather_object)
    gathered = gather(mine)
    assert [each.id for each in gathered] == [1, 2, 3, 4, 5]
    assert gathered[0].caption.text == "a"


def test_gathering_changes_nothing_else():
    answers = [answer(1, "a cat"), answer(2, "a dog")]
    assert gather(answers) == answers
    assert gather([]) == []


# -- numbers ---------------------------------------------------------------------------------------------------


def test_perfect_captions():
    texts = ["a small red circle", "a big blue square here"]
    numbers = summarise([answer(i, text) for i, text in enumerate(texts)], PROTOCOL).numbers
    for name in ("BLEU-1", "BLEU-4", "ROUGE-L"):
        assert numbers[name] == pytest.approx(1, abs=1e-6)


def test_scores_are_of_the_free_running_captions():
    right = summarise([answer(1, "a red circle here", "a red circle here")], PROTOCOL).numbers
    wrong = summarise([answer(1, "blue squares", "a red circle here")], PROTOCOL).numbers
    assert wrong["BLEU-1"] < 0.01 < right["BLEU-1"]
    assert wrong["NLL"] == right["NLL"]  # of the references, under teacher forcing


def test_nll_is_a_mean_over_words_not_over_images():
    numbers = summarise(
        [answer(1, "a cat", nll=10.0, steps=2), answer(2, "a dog", nll=2.0, steps=6)], PROTOCOL
    ).numbers
    assert numbers["NLL"] == pytest.approx(12 / 8)


def test_entropy_of_uniform_and_of_pointed_maps():
    pointed = np.zeros((2, 2, 2))
    pointed[:, 0, 1] = 1
    spread = summarise([answer(1, "a cat")], PROTOCOL).numbers
    sharp = summarise([answer(1, "a cat", weights=pointed)], PROTOCOL).numbers
    assert spread["attention_entropy"] == pytest.approx(math.log(4))
    assert sharp["attention_entropy"] == pytest.approx(0, abs=1e-6)
    assert spread["attention_entropy_max"] == sharp["attention_entropy_max"] == pytest.approx(math.log(4))


def test_change_is_the_share_of_the_mass_that_moves_from_word_to_word():
    still = [[[1, 0], [0, 0]]] * 3
    jumping = [[[1, 0], [0, 0]], [[0, 1], [0, 0]], [[0, 0], [0, 1]]]
    half = [[[1, 0], [0, 0]], [[0.5, 0.5], [0, 0]], [[0.5, 0.5], [0, 0]]]
    for weights, expected in ((still, 0), (jumping, 1), (half, 0.25)):
        numbers = summarise([answer(1, "one two three", weights=weights)], PROTOCOL).numbers
        assert numbers["attention_change"] == pytest.approx(expected)


def test_change_does_not_reach_from_one_caption_to_the_next():
    left, right = [[[1, 0], [0, 0]]] * 2, [[[0, 1], [0, 0]]] * 2
    answers = [answer(1, "a cat", weights=left), answer(2, "a dog", weights=right)]
    assert summarise(answers, PROTOCOL).numbers["attention_change"] == 0


def test_empty_captions_are_scored_and_do_not_crash():
    numbers = summarise([answer(1, "", "a cat"), answer(2, "", "a dog")], PROTOCOL).numbers
    assert numbers["BLEU-4"] == pytest.approx(0, abs=1e-6)
    assert numbers["attention_entropy"] == 0
    assert all(math.isfinite(value) for value in numbers.values())


def test_pointing_needs_boxes_and_looks_at_the_word_that_names_the_object():
    weights = [[[1, 0], [0, 0]], [[0, 1], [0, 0]]]  # "a" attends to the left, "cat" to the right
    answers = [answer(1, "a cat", weights=weights)]
    assert "pointing_accuracy" not in summarise(answers, PROTOCOL).numbers
    right = summarise(answers, PROTOCOL, {1: {"cat": [(4, 0, 8, 4)]}}).numbers
    left = summarise(answers, PROTOCOL, {1: {"cat": [(0, 0, 4, 4)]}}).numbers
    assert (right["pointing_accuracy"], left["pointing_accuracy"]) == (1, 0)
    assert right["pointing_chance"] == left["pointing_chance"] == 0.25


def test_pointing_is_compared_with_maps_of_other_words():
    """With the correct map of "cat" for both words, the other word's map is as good. Then each word has its own."""
    left, right = [[1, 0], [0, 0]], [[0, 1], [0, 0]]
    boxes = {1: {"cat": [(4, 0, 8, 4)]}}
    still = summarise([answer(1, "a cat", weights=[right, right])], PROTOCOL, boxes).numbers
    moving = summarise([answer(1, "a cat", weights=[left, right])], PROTOCOL, boxes).numbers
    assert still["pointing_accuracy"] == moving["pointing_accuracy"] == 1
    assert still["pointing_other_word"] == 1
    assert moving["pointing_other_word"] == 0
    assert "pointing_other_word" not in summarise([answer(1, "a cat")], PROTOCOL).numbers


def test_images_without_boxes_are_left_alone():
    answers = [answer(1, "a cat"), answer(2, "a cat")]
    numbers = summarise(answers, PROTOCOL, {1: {"cat": [(0, 0, 8, 8)]}}).numbers
    assert numbers["pointing_accuracy"] == 1
    assert numbers["pointing_mentions"] == 1


# -- protocol --------------------------------------------------------------------------------------------------


def test_the_signature_tells_the_protocol():
    evaluation = summarise([answer(1, "a cat", "a cat", "one cat")], {**PROTOCOL, "hard": "argmax"})
    for entry in (
        "tok:ptb",
        "case:lower",
        "refs:2",
        "bp:on",
        "n:1",
        "split:test",
        "Greedy(max_length=30)",
        "hard:argmax",
    ):
        assert entry in evaluation.signature


def test_files_are_readable_by_other_tools(tmp_path: Path):
    answers = [answer(7, "a cat"), answer(8, "a dog")]
    evaluation = summarise(answers, PROTOCOL)
    write_results([each.without_maps() for each in answers], tmp_path / "new" / "results.json")
    write_evaluation(evaluation, tmp_path / "new" / "scores.json")
    results = json.loads((tmp_path / "new" / "results.json").read_text())
    assert results == [{"image_id": 7, "caption": "a cat"}, {"image_id": 8, "caption": "a dog"}]
    scores = json.loads((tmp_path / "new" / "scores.json").read_text())
    assert scores == {"scores": evaluation.numbers, "signature": evaluation.signature}


def test_the_results_score_the_same_by_themselves(tmp_path: Path, cli):
    """`caption score` on the files gives the same scores."""
    answers = [
        answer(1, "a red circle", "a red circle", "one circle"),
        answer(2, "a blue dog", "a green square"),
    ]
    evaluation = summarise(answers, PROTOCOL)
    write_results([each.without_maps() for each in answers], tmp_path / "results.json")
    texts = [(each.id, text) for each in answers for text in each.references]
    annotations = [{"id": i, "image_id": image, "caption": text} for i, (image, text) in enumerate(texts)]
    references = {
        "images": [{"id": each.id, "file_name": "x"} for each in answers],
        "annotations": annotations,
    }
    (tmp_path / "references.json").write_text(json.dumps(references))
    ran = cli(
        *("score", "--references", tmp_path / "references.json"),
        *("--candidates", tmp_path / "results.json", "--format", "json"),
    )
    scores = json.loads(ran.out)["scores"]
    for name in ("BLEU-1", "BLEU-4", "CIDEr", "ROUGE-L"):
        assert scores[name] == pytest.approx(evaluation.numbers[name], abs=1e-9)
