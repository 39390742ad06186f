"""Constrained beam search: by hand, against enumeration, and against beam search without constraints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import torch
from helpers import search_reference as reference
from helpers.search_models import END, START, A, B, Chain, HashModel, captions

from caption.core.errors import UserError
from caption.search import BeamSearch, ConstrainedBeamSearch, Hypotheses
from caption.search.constrained import Automaton, mentioning

C = 4
BY_HAND = [
    # start, end, A, B, C
    [0.0, 0.10, 0.50, 0.30, 0.10],  # after start
    [0.2, 0.20, 0.20, 0.20, 0.20],  # after end: never used
    [0.0, 0.80, 0.10, 0.05, 0.05],  # after A
    [0.0, 0.30, 0.60, 0.05, 0.05],  # after B
    [0.0, 0.10, 0.40, 0.40, 0.10],  # after C
]
"""p(next | last word). Without constraints the best is A end, 0.40."""


def search_by_hand(wanted: Sequence[Sequence[int]], beam_size: int = 3, **more: int) -> Hypotheses:
    search = ConstrainedBeamSearch(BeamSearch(beam_size, 4, **more), mentioning([wanted], 5))
    return Chain(BY_HAND).search(search, [START])


@pytest.mark.parametrize(
    ("wanted", "words", "probability"),
    [
        ([], [A], 0.5 * 0.8),
        ([[A]], [A], 0.5 * 0.8),
        # B A end: 0.3 · 0.6 · 0.8; B end is 0.3 · 0.3.
        ([[B]], [B, A], 0.144),
        # C A end: 0.1 · 0.4 · 0.8; A C end, the best that begins with A, is 0.5 · 0.05 · 0.1.
        ([[C]], [C, A], 0.032),
        ([[B, C]], [B, A], 0.144),
        # C B A end: 0.1 · 0.4 · 0.6 · 0.8; B C A end is 0.3 · 0.05 · 0.4 · 0.8.
        ([[B], [C]], [C, B, A], 0.0192),
        # Each constraint is met by any of its words, also by the same one.
        ([[B, C], [C]], [C, A], 0.032),
    ],
)
def test_by_hand(wanted: list[list[int]], words: list[int], probability: float) -> None:
    hypotheses = search_by_hand(wanted)
    assert captions(hypotheses, 0) == [words]
    assert hypotheses.finished.tolist() == [[True]]
    assert float(hypotheses.log_probs.exp()) == pytest.approx(probability)
    assert hypotheses.trace.tolist() == [[[START, *words[:-1]]]]


def test_captions_that_meet_the_constraints_come_first_and_else_the_best_other_one() -> None:
    hypotheses = search_by_hand([[C]], 3, candidates=3)
    assert captions(hypotheses, 0)[0] == [C, A]
    assert all(C in caption for caption in captions(hypotheses, 0))
    assert hypotheses.scores[0].tolist() == sorted(hypotheses.scores[0].tolist(), reverse=True)
    # Four words of which each must occur do not fit into four steps, three words and the end word.
    hypotheses = search_by_hand([[A], [B], [C], [START]])
    assert captions(hypotheses, 0) == [[A]], "the best caption of all, and not an unfinished one"
    assert hypotheses.finished.tolist() == [[True]]
    with pytest.raises(UserError, match="5 constraints on a caption are too many"):
        mentioning([[[word] for word in range(5)]], 9)


def best_of_all(
    model: HashModel, image: int, wanted: Sequence[Sequence[int]], max_length: int, normalization: float
) -> tuple[list[int], float]:
    """By enumeration: the best finished caption that has a word of each set."""
    following = partial(model.next_log_probs, image)
    for one in reference.exhaustive(following, model.words, END, max_length, normalization):
        if START not in one.words and all(set(words) & set(one.words) for words in wanted):
            return one.words, one.score
    raise AssertionError("some caption has the words")


@pytest.mark.parametrize("normalization", [0.0, 0.7])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_what_enumeration_finds(seed: int, normalization: float) -> None:
    model = HashModel(6, seed)
    wanted: list[list[list[int]]] = [[], [[2]], [[3, 4], [5]], [[4]], [[2], [3], [5]]]
    for image, constraints in enumerate(wanted):
        width = 1000 // 2 ** len(constraints)
        search = ConstrainedBeamSearch(BeamSearch(width, 5, normalization), mentioning([constraints], 6))
        hypotheses = search(model.step, model.start([image]), 1, START, END, [START])
        words, score = best_of_all(model, image, constraints, 5, normalization)
        assert captions(hypotheses, 0) == [words]
        assert float(hypotheses.scores[0, 0]) == pytest.approx(score, rel=1e-9)


@pytest.mark.parametrize("search", [BeamSearch(3, 8, 0.7, candidates=3), BeamSearch(1, 8), BeamSearch(9, 5)])
def test_without_constraints_it_is_beam_search(search: BeamSearch) -> None:
    model, batch = HashModel(7, seed=3, holes=0.3), list(range(5))
    constrained = ConstrainedBeamSearch(search, mentioning([[]] * 5, 7))
    run = [each(model.step, model.start(batch), 5, START, END, [START]) for each in (search, constrained)]
    for one, other in zip(*(hypotheses[:6] for hypotheses in run), strict=True):
        assert torch.equal(one, other)


def test_images_of_a_batch_do_not_mind_each_other() -> None:
    model, batch = HashModel(7, seed=1), list(range(4))
    wanted: list[list[list[int]]] = [[[2]], [], [[3], [4, 5]], [[6]]]

    def found(images: list[int]) -> list[list[int]]:
        automaton = mentioning([wanted[image] for image in images], 7)
        search = ConstrainedBeamSearch(BeamSearch(3, 9, 0.5), automaton)
        hypotheses = search(model.step, model.start(images), len(images), START, END, [START])
        return [captions(hypotheses, place)[0] for place in range(len(images))]

    assert found(batch) == [found([image])[0] for image in batch]


def test_words_that_may_not_follow_do_not() -> None:
    """An automaton of two states in which B must follow A at once, and the caption cannot end before."""
    model = HashModel(5, seed=2)
    transitions = torch.tensor([[[0, 0, 1, -1, 0], [-1, -1, -1, 0, -1]]])
    automaton = Automaton(transitions, torch.tensor([[True, False]]))
    search = ConstrainedBeamSearch(BeamSearch(4, 8, candidates=4), automaton)
    hypotheses = search(model.step, model.start([0]), 1, START, END, [START])
    for caption in captions(hypotheses, 0):
        assert [word == B for word in caption] == [False, *(word == A for word in caption)][: len(caption)]
        assert not caption or caption[-1] != A
    assert any(A in caption for caption in captions(hypotheses, 0))
