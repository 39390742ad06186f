"""The tree of a beam search: by hand, against a plain beam search over lists, and in the captions of a model."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from helpers import search_reference as reference
from helpers.search_models import END, START, A, B, Chain, HashModel
from helpers.tiny_captioner import captioner, photo
from hypothesis import given
from hypothesis import strategies as st

from caption.analysis.interventions.encoded_photo import EncodedPhoto
from caption.beam_tree import BeamTree, beam_tree
from caption.search import BeamSearch, Greedy, Hypotheses
from caption.tensor_tree import map_tensors

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
        kept = reference.kept_at_each_step(
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
    first = found[0].beam_tree
    assert repr(first) == repr(alone)
    assert [[node.word for node in step] for step in first.steps] == [
        [node.word for node in step] for step in alone.steps
    ]


def test_words_that_a_change_keeps_are_a_single_branch():
    from caption.analysis.interventions import Force

    encoded = EncodedPhoto(captioner(), photo())
    search = BeamSearch(3, 8)
    before = encoded.caption(search=search)
    edits = before.edits.plus([Force((0, 0), at=2)], before.caption)
    tree = encoded.caption(edits, search, before).caption.beam_tree
    assert [len(step) for step in tree.steps[:3]] == [1, 1, 3]
    assert [step[0].word for step in tree.steps[:2]] == before.caption.words[:2]
    forced = tree.weights[tree.steps[2][0].map_index]
    assert forced[0, 0] == pytest.approx(1)
