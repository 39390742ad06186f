"""Beam search and the tree of what it kept: by hand, against plain searches over lists, against enumeration, and in
the captions of a model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
import torch
from helpers.search_models import END, START, HashModel, captions, check, penalised
from helpers.tiny_captioner import captioner, photo
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from caption.analysis.interventions import Force
from caption.analysis.interventions.encoded_photo import EncodedPhoto
from caption.core.tensor_tree import State, map_tensors
from caption.results.beam_tree import BeamTree, beam_tree
from caption.search import BeamSearch, Greedy, Hypotheses, Search, top_k

# -- plain searches over lists, one image at a time, and a chain made by hand ------------------------------------------

Next = Callable[[list[int]], list[float]]


class Reference(NamedTuple):
    words: list[int]
    log_prob: float
    score: float
    finished: bool


def allowed(log_probs: list[float], forbidden: Sequence[int]) -> list[tuple[int, float]]:
    return [
        (word, log_prob)
        for word, log_prob in enumerate(log_probs)
        if word not in forbidden and log_prob > -math.inf
    ]


def beam(
    following: Next,
    end: int,
    forbidden: Sequence[int],
    *,
    beam_size: int,
    max_length: int,
    normalization: float,
    candidates: int,
) -> list[Reference]:
    """It does not stop early: it continues to `max_length` while a hypothesis is unfinished."""
    steps = kept_at_each_step(following, end, forbidden, beam_size=beam_size, max_length=max_length)
    ended = [one for step in steps for one in step if one.words[-1] == end]
    live = [one for one in steps[-1] if one.words[-1] != end] if steps else [Kept([], None, 0.0)]
    pool = [Reference(w[:-1], p, p / len(w) ** normalization, True) for w, _, p in ended]
    pool.sort(key=lambda caption: -caption.score)
    rest = [Reference(w, p, p / max(len(w), 1) ** normalization, False) for w, _, p in live]
    rest.sort(key=lambda caption: -caption.score)
    return (pool + rest)[:candidates]


class Kept(NamedTuple):
    """A hypothesis that a beam search keeps at a step."""

    words: list[int]
    parent: int | None
    """Its place among those of the step before, the ended ones included."""
    total: float


def kept_at_each_step(
    following: Next, end: int, forbidden: Sequence[int], *, beam_size: int, max_length: int
) -> list[list[Kept]]:
    """The `beam_size` most probable extensions of each step, those with the end word included; no early stop."""
    steps: list[list[Kept]] = []
    live: list[tuple[int | None, list[int], float]] = [(None, [], 0.0)]
    while live and len(steps) < max_length:
        extensions = [
            Kept([*words, word], place, total + log_prob)
            for place, words, total in live
            for word, log_prob in allowed(following(words), forbidden)
        ]
        if not extensions:
            break
        steps.append(sorted(extensions, key=lambda one: -one.total)[:beam_size])
        live = [(place, one.words, one.total) for place, one in enumerate(steps[-1]) if one.words[-1] != end]
    return steps


def exhaustive(
    following: Next, words: int, end: int, max_length: int, normalization: float
) -> list[Reference]:
    """All finished captions, best first."""
    everything = []
    inner = [word for word in range(words) if word != end]
    for length in range(1, max_length + 1):
        for prefix in itertools.product(inner, repeat=length - 1):
            emitted = [*prefix, end]
            total = 0.0
            for time, word in enumerate(emitted):
                total += following(emitted[:time])[word]
            if total > -math.inf:
                everything.append(Reference(list(prefix), total, total / length**normalization, True))
    return sorted(everything, key=lambda caption: -caption.score)


A, B = 2, 3
BY_HAND = (
    # start, end, A, B
    (0.00, 0.10, 0.50, 0.40),  # after start
    (0.25, 0.25, 0.25, 0.25),  # after end: never used
    (0.00, 0.25, 0.40, 0.35),  # after A
    (0.00, 0.90, 0.05, 0.05),  # after B
)
"""Greedy search takes A; p(B end) = 0.4 · 0.9 = 0.36; p(A A B end) = 0.5 · 0.4 · 0.35 · 0.9 = 0.063."""


class Chain:
    """The next word depends only on the last one: probabilities (V, V), with a row for each last word. Its trace is the
    word that was read."""

    def __init__(self, probabilities: Sequence[Sequence[float]] = BY_HAND) -> None:
        self.log_probs = torch.tensor(probabilities, dtype=torch.float64).log()
        self.calls = 0

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        self.calls += 1
        return self.log_probs[words], State(None, None, words)

    def search(self, search: Search, forbidden: Sequence[int] = (), **options: bool) -> Hypotheses:
        return search(self.step, State(None, None, None), 1, START, END, forbidden, **options)


# -- the tests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beam_size", "normalization", "words", "probability", "score", "steps"),
    [
        # A, A A, A A A, A A A A: never the end word.
        (1, 0.0, [A, A, A, A], 0.5 * 0.4**3, math.log(0.032), 4),
        # Step 1 keeps A 0.5, B 0.4; step 2 keeps B end 0.36 and A A 0.2, which can no longer win.
        (2, 0.0, [B], 0.36, math.log(0.36), 2),
        # log 0.36 / 2 = −0.51; A A could still reach log 0.2 / 4 = −0.40; A A A only log 0.08 / 4 = −0.63.
        (2, 1.0, [B], 0.36, math.log(0.36) / 2, 3),
        # log 0.36 / 2² = −0.26 against log 0.063 / 4² = −0.17.
        (2, 2.0, [A, A, B], 0.063, math.log(0.063) / 16, 4),
    ],
)
def test_by_hand(
    beam_size: int, normalization: float, words: list[int], probability: float, score: float, steps: int
) -> None:
    chain = Chain()
    hypotheses = chain.search(BeamSearch(beam_size, 4, normalization))
    assert hypotheses.words.tolist() == [[words]]
    assert hypotheses.lengths.tolist() == [[len(words)]]
    assert hypotheses.finished.tolist() == [[beam_size > 1]]
    torch.testing.assert_close(float(hypotheses.log_probs), math.log(probability))
    torch.testing.assert_close(float(hypotheses.scores), score)
    assert hypotheses.trace.tolist() == [[[START, *words[:-1]]]]  # of the step that emitted each word
    assert chain.calls == steps


@pytest.mark.parametrize("exponent", [10, 10.0])
def test_the_largest_exponent_ranks_by_length(exponent: float):
    """In single precision, and for integers, whose powers have no limit in Python."""
    log_probs = torch.tensor([0.3, 0.7]).log()

    def step(state: State, words: Tensor) -> tuple[Tensor, State]:
        return log_probs.expand(*words.shape, 2), state

    found = BeamSearch(3, 1000, exponent, 3)(step, State(None, None, None), 1, START, end=0)
    assert found.lengths.tolist() == [[999, 998, 997]]
    assert -1e-25 < found.scores.min() <= found.scores.max() < 0


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    words=st.integers(2, 7),
    images=st.integers(1, 5),
    search=st.builds(
        lambda beam_size, candidates, penalty, *rest: BeamSearch(
            beam_size, *rest, min(candidates, beam_size), penalty
        ),
        st.integers(1, 8),
        st.integers(1, 8),
        st.sampled_from([0.0, 0.7, 1000.0]),
        st.integers(1, 8),
        st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    ),
    content=st.sets(st.integers(2, 4)),
    holes=st.sampled_from([0.0, 0.3, 0.9]),
    forbidden=st.sets(st.integers(0, 2), max_size=3),
    block=st.sampled_from([1, 2, 64]),
)
def test_equals_the_naive_search(
    seed: int,
    words: int,
    images: int,
    search: BeamSearch,
    content: set[int],
    holes: float,
    forbidden: set[int],
    block: int,
) -> None:
    """The naive search never stops early, so this also tests that early stopping is exact. Greedy search has a beam of
    one."""
    model = HashModel(words, seed, holes)
    barred = sorted(word for word in forbidden if word < words)
    model.barred = barred
    batch = list(range(images))
    for each in (search, Greedy(search.max_length, search.repeat_penalty)):
        with patch.object(top_k, "BLOCK", block):
            hypotheses = each(model.step, model.start(batch), images, START, END, barred, [*content])
        check(hypotheses, model, batch, each.max_length, barred)
        for image in batch:
            wanted = beam(
                penalised(partial(model.next_log_probs, image), content, search.repeat_penalty),
                END,
                barred,
                beam_size=getattr(each, "beam_size", 1),
                max_length=each.max_length,
                normalization=getattr(each, "length_normalization", 0.0),
                candidates=hypotheses.words.shape[1],
            )
            missing = hypotheses.words.shape[1] - len(wanted)
            assert captions(hypotheses, image) == [one.words for one in wanted] + [[]] * missing
            assert hypotheses.finished[image].tolist() == [one.finished for one in wanted] + [False] * missing
            scores = [one.score for one in wanted] + [-math.inf] * missing
            assert hypotheses.scores[image].tolist() == pytest.approx(scores, rel=1e-12)
            assert hypotheses.log_probs[image, len(wanted) :].tolist() == [-math.inf] * missing


def test_finished_images_leave_the_batch() -> None:
    model, batch = HashModel(6, seed=3), list(range(12))
    BeamSearch(3, 15, candidates=2)(model.step, model.start(batch), len(batch), START, END)
    assert model.batches == sorted(model.batches, reverse=True)
    assert model.batches[-1] < len(batch) / 2


@pytest.mark.parametrize("normalization", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(("words", "max_length"), [(3, 5), (4, 4)])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("penalty", [0.0, 1.0, 1000.0])
def test_a_wide_beam_finds_the_best_of_all_captions(
    seed: int, words: int, max_length: int, normalization: float, penalty: float
) -> None:
    model = HashModel(words, seed)
    every = words**max_length
    search = BeamSearch(every, max_length, normalization, 5, penalty)
    hypotheses = search(model.step, model.start([0, 1]), 2, START, END, content=[2])
    for image in range(2):
        following = penalised(partial(model.next_log_probs, image), [2], penalty)
        best = exhaustive(following, words, END, max_length, normalization)[:5]
        assert captions(hypotheses, image) == [one.words for one in best]
        assert hypotheses.scores[image].tolist() == pytest.approx([one.score for one in best], rel=1e-12)


# -- the tree of a search -----------------------------------------------------------------------------------------

NAMES = {A: "a", B: "b"}


def tree_of(hypotheses: Hypotheses, image: int = 0) -> BeamTree:
    record = map_tensors(lambda tensor: tensor[image], hypotheses.record)
    weights = torch.eye(4, dtype=torch.float64)[record.trace]  # all on the region of the word that was read
    return beam_tree(record, weights, (2, 2), lambda word: NAMES.get(word, str(word)), END)


def test_the_tree_of_a_transition_matrix_by_hand():
    search = BeamSearch(2, 4, length_normalization=1.0, candidates=2)
    tree = tree_of(Chain().search(search, record=True))
    found = [
        [(n.word, n.parent, round(math.exp(n.log_prob), 3), round(math.exp(n.total), 4)) for n in step]
        for step in tree.steps
    ]
    assert found == [
        [("a", None, 0.5, 0.5), ("b", None, 0.4, 0.4)],
        [("(end)", 1, 0.9, 0.36), ("a", 0, 0.4, 0.2)],
        [("a", 1, 0.4, 0.08), ("b", 1, 0.35, 0.07)],
        [("(end)", 1, 0.9, 0.063), ("a", 0, 0.4, 0.032)],
    ]
    ended = [[node.ended for node in step] for step in tree.steps]
    assert ended == [[False, False], [True, False], [False, False], [True, False]]
    assert tree.paths == [[1, 0], [0, 1, 1, 0]]  # "b" and "a a b"
    assert [tree.words(3, place) for place in range(2)] == [["a", "a", "b", "(end)"], ["a"] * 4]
    # Where each looked: children of one hypothesis at the same place.
    read = [[int(tree.weights[node.map_index].argmax()) for node in step] for step in tree.steps]
    assert read == [[START, START], [B, A], [A, A], [B, A]]
    assert [[node.map_index for node in step] for step in tree.steps] == [[0, 0], [1, 2], [3, 3], [4, 5]]
    assert tree.weights.shape == (6, 2, 2)
    assert [tree.moved_share(1, place) for place in range(2)] == [0.0, 1.0]
    assert tree.moved_share(2, 0) is None  # the caption has ended
    assert tree.width == 2


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    words=st.integers(2, 6),
    images=st.integers(1, 4),
    beam_size=st.integers(1, 6),
    max_length=st.integers(1, 7),
    normalization=st.sampled_from([0.0, 1.0]),
    holes=st.sampled_from([0.0, 0.3, 0.9]),
)
def test_the_tree_is_what_a_plain_beam_search_keeps(
    seed, words, images, beam_size, max_length, normalization, holes
):
    model, batch = HashModel(words, seed, holes), list(range(images))
    search = BeamSearch(beam_size, max_length, normalization, candidates=min(2, beam_size))
    hypotheses = search(model.step, model.start(batch), images, START, END, record=True)
    plain = search(model.step, model.start(batch), images, START, END)
    assert plain.record is None
    assert torch.equal(plain.words, hypotheses.words)
    for image in batch:
        record = map_tensors(lambda tensor, image=image: tensor[image], hypotheses.record)
        tree = beam_tree(record, record.trace.weights[0], (1, 3), str, END)
        kept = kept_at_each_step(
            partial(model.next_log_probs, image), END, [], beam_size=beam_size, max_length=max_length
        )
        assert len(tree.steps) <= len(kept)
        for step, nodes in enumerate(tree.steps):
            assert [node.parent for node in nodes] == [one.parent for one in kept[step]]
            assert [node.total for node in nodes] == pytest.approx([one.total for one in kept[step]])
            for place, one in enumerate(kept[step]):
                named = ["(end)" if word == END else str(word) for word in one.words]
                assert tree.words(step, place) == named
                assert tree.steps[step][place].ended == (one.words[-1] == END)
        # The paths are those of the captions, to which nothing is added by images that take longer.
        for rank, path in enumerate(tree.paths):
            said = hypotheses.words[image, rank, : hypotheses.lengths[image, rank]].tolist()
            end = ["(end)"] * bool(hypotheses.finished[image, rank])
            assert tree.words(len(path) - 1, path[-1]) == [*map(str, said), *end]
            total = tree.steps[len(path) - 1][path[-1]].total
            assert total == pytest.approx(float(hypotheses.log_probs[image, rank]))
        alone = search(model.step, model.start([image]), 1, START, END, record=True)
        one = map_tensors(lambda tensor: tensor[0], alone.record)
        assert beam_tree(one, one.trace.weights[0], (1, 3), str, END).steps == tree.steps


def test_the_caption_of_a_model_has_the_tree_if_asked():
    model, image = captioner(), photo()
    assert model(image).beam_tree is None
    assert model.describe(image, Greedy(8), beam_tree=True).beam_tree is None
    found = model.describe([image, photo(seed=1)], beam_size=3, candidates=2, beam_tree=True)
    alone = model.describe(image, beam_size=3, candidates=2, beam_tree=True).beam_tree
    for caption in found:
        tree = caption.beam_tree
        for each, path in zip((caption, *caption.alternatives), tree.paths, strict=True):
            said = tree.words(len(path) - 1, path[-1])
            assert said[: len(each.words)] == each.words
            looks = [tree.steps[step][place].map_index for step, place in enumerate(path)]
            np.testing.assert_allclose(tree.weights[looks[: len(each.words)]], each.weights, atol=1e-6)
            assert tree.steps[len(path) - 1][path[-1]].total == pytest.approx(each.log_prob, abs=1e-5)
        assert caption.with_weights(caption.weights).beam_tree is None
    words = [[[node.word for node in step] for step in tree.steps] for tree in (found[0].beam_tree, alone)]
    assert words[0] == words[1]


def test_words_that_a_change_keeps_are_a_single_branch():
    encoded = EncodedPhoto(captioner(), photo())
    search = BeamSearch(3, 8)
    before = encoded.caption(search=search)
    edits = before.edits.plus([Force((0, 0), at=2)], before.caption)
    tree = encoded.caption(edits, search, before).caption.beam_tree
    assert [len(step) for step in tree.steps[:3]] == [1, 1, 3]
    assert [step[0].word for step in tree.steps[:2]] == before.caption.words[:2]
    forced = tree.weights[tree.steps[2][0].map_index]
    assert forced[0, 0] == pytest.approx(1)
