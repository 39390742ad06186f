"""Wrappers of the step function: a given beginning, and the likeliest words of each step, whatever the search."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from helpers.search_models import HashModel, Trace
from helpers.tiny_captioner import captioner, photo
from torch import Tensor

from caption.result import Caption
from caption.search import BeamSearch, Greedy, Sampling, Search, Step
from caption.search.step_functions import with_likeliest_words, with_prefix, with_word_aliases
from caption.tensor_tree import State
from caption.text.vocabulary import END, PAD, START

SEARCHES = [
    Greedy(max_length=6),
    BeamSearch(beam_size=3, max_length=6, candidates=3),
    Sampling(max_length=6, samples=4, seed=0),
    Sampling(max_length=6, top_k=2, seed=0),
]


@torch.no_grad()
@pytest.mark.parametrize("search", SEARCHES)
def test_every_caption_begins_so_and_goes_on_as_the_model_would(search: Search):
    model = captioner()
    views = model.encode([photo(), photo(seed=1)])
    captions = model.generate(views, search, [partial(with_prefix, words=[6, 5])])
    assert (captions.words[..., :2] == torch.tensor([6, 5])).all()
    assert (captions.lengths >= 2).all()
    assert captions.lengths.max() > 2
    # Their log-probabilities are the model's own.
    words = captions.words[:, :1]
    inputs = torch.cat((torch.full_like(words[..., :1], START), words), -1)
    steps = captions.lengths[:, :1] + captions.finished[:, :1].long()
    unrolled = model.unroll(views, inputs, steps)
    targets = torch.cat((words, torch.full_like(words[..., :1], END)), -1)
    terms = unrolled.logits.log_softmax(-1).gather(-1, unrolled.pack(targets)[:, None])
    expected = unrolled.unpack(terms).squeeze(-1)
    torch.testing.assert_close(captions.word_log_probs[:, :1], expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(captions.log_probs[:, :1], expected.sum(-1), rtol=1e-4, atol=1e-4)


def test_a_greedy_caption_with_its_own_beginning_is_the_same():
    model = captioner(search=Greedy(max_length=8))
    views = model.encode([photo()])
    free = model.generate(views)
    words = free.words[0, 0, : free.lengths[0, 0]].tolist()
    assert len(words) > 2
    for begin in ([], words[:1], words[:2], words):
        again = model.generate(views, None, [partial(with_prefix, words=begin)])
        assert torch.equal(again.words, free.words)
        assert torch.equal(again.log_probs, free.log_probs)


@torch.no_grad()
@pytest.mark.parametrize("search", SEARCHES[:3])
def test_the_likeliest_words_are_those_of_teacher_forcing(search: Search):
    model = captioner(search=search)
    best = model.describe([photo(), photo(40, 80, 1)])[1]
    views = model.encode([photo(40, 80, 1)])
    for caption in (best, *best.alternatives):
        ids = torch.tensor([START, *(model.vocabulary[word] for word in caption.words)])
        unrolled = model.unroll(views, ids[None, None], torch.tensor([[len(ids)]]))
        log_probs = unrolled.unpack(unrolled.logits)[0, 0].log_softmax(-1)
        assert len(caption.likeliest) == len(caption.words)
        for step, (word, likeliest) in enumerate(zip(caption.words, caption.likeliest, strict=True)):
            best_log_probs, order = log_probs[step].topk(5)
            expected = [
                ("(end)" if id == END else model.vocabulary[id], log_prob)
                for id, log_prob in zip(order.tolist(), best_log_probs.tolist(), strict=True)
                if id not in (PAD, START)
            ]
            assert [name for name, _ in likeliest] == [name for name, _ in expected]
            np.testing.assert_allclose([p for _, p in likeliest], [p for _, p in expected], atol=1e-4)
            if isinstance(search, Greedy):
                assert word == next(name for name, _ in likeliest if name not in ("<unk>", "(end)"))


def test_search_finds_the_same_with_and_without_them():
    model = captioner(search=BeamSearch(3, 8, candidates=2))
    views = model.encode([photo(), photo(40, 80, 1), photo(80, 80, 2)])
    plain, traced = (
        model.generate(views),
        model.generate(views, None, [partial(with_likeliest_words, count=3)]),
    )
    assert (plain.words == traced.words).all()
    assert (plain.log_probs == traced.log_probs).all()
    assert (plain.trace.weights == traced.trace.trace.weights).all()
    assert traced.trace.words.shape == (*plain.words.shape, 3)


def test_the_first_wrapper_is_the_innermost():
    model, calls = captioner(), []

    def noting(step: Step, name: str) -> Step:
        def noted(state: State, words: Tensor) -> tuple[Tensor, State]:
            calls.append(name)
            return step(state, words)

        return noted

    wrappers = [partial(noting, name="inner"), partial(noting, name="outer")]
    model.generate(model.encode([photo()]), Greedy(max_length=1), wrappers)
    assert calls == ["outer", "inner"]


def test_the_step_gets_back_its_own_trace():
    model = HashModel(5, seed=0)

    def step(state: State, words: Tensor) -> tuple[Tensor, State]:
        assert state.trace is None or isinstance(state.trace, Trace)
        return model.step(state, words)

    captions = Greedy(4)(with_likeliest_words(step, 2), model.start([0, 1]), 2, START, END, [END])
    assert captions.trace.words.shape == (2, 1, 4, 2)


def test_a_caption_wants_them_for_every_word():
    weights = np.full((2, 1, 2), 0.5)
    fields = ("a dog", ["a", "dog"], weights, -1, [-1, -1], (0, 0, 2, 1))
    with pytest.raises(ValueError, match="2 steps, not of 1"):
        Caption(*fields, likeliest=[[("a", -1.0)]])
    likeliest = [[("a", -0.5)], [("cat", -np.inf), ("dog", -1.0)]]
    assert Caption(*fields, likeliest=likeliest).to_dict()["likeliest"] == [
        [["a", -0.5]],
        [["cat", None], ["dog", -1.0]],
    ]
    assert Caption(*fields).to_dict()["likeliest"] is None


def test_a_new_word_is_said_and_read_as_its_stand_in():
    model = HashModel(6, seed=4)
    step = with_word_aliases(model.step, [0, 1, 2, 3, 2, 5, 3, 5])
    state = model.start([0, 1])
    plain, after = model.step(state, torch.tensor([[3], [5]]))
    extended, extended_after = step(state, torch.tensor([[6], [7]]))
    assert torch.equal(extended, plain[..., [0, 1, 2, 3, 2, 5, 3, 5]])
    assert torch.equal(extended_after.carried[0], after.carried[0])
    same, _ = step(state, torch.tensor([[3], [5]]))
    assert torch.equal(same, extended)
