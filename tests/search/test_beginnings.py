"""A given beginning, and the likeliest words of each step, whatever the search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.search_models import HashModel
from helpers.tiny_captioner import captioner, photo

from caption.results.caption import Caption
from caption.search import BeamSearch, Greedy, Sampling, Search
from caption.text.vocabulary import END, FORBIDDEN, PAD, START

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
    state = model.decoder.start(model.project(views))
    captions = search(model.decoder.step, state, 2, START, END, FORBIDDEN, beginning=[6, 5])
    assert (captions.words[..., :2] == torch.tensor([6, 5])).all()
    assert (captions.lengths >= 2).all()
    assert captions.lengths.max() > 2
    words = captions.words[:, :1]  # the model's own log-probabilities
    inputs = torch.cat((torch.full_like(words[..., :1], START), words), -1)
    steps = captions.lengths[:, :1] + captions.finished[:, :1].long()
    unrolled = model.unroll(views, inputs, steps)
    targets = torch.cat((words, torch.full_like(words[..., :1], END)), -1)
    terms = unrolled.logits.log_softmax(-1).gather(-1, unrolled.pack(targets)[:, None])
    expected = unrolled.unpack(terms).squeeze(-1)
    torch.testing.assert_close(captions.word_log_probs[:, :1], expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(captions.log_probs[:, :1], expected.sum(-1), rtol=1e-4, atol=1e-4)


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
    model = HashModel(5, seed=0)
    search = BeamSearch(3, 8, candidates=2)
    without, kept = (
        search(model.step, model.start([0, 1, 2]), 3, START, END, [START], likeliest=count)
        for count in (0, 3)
    )
    assert without.likeliest is None
    assert torch.equal(without.words, kept.words)
    assert torch.equal(without.log_probs, kept.log_probs)
    assert torch.equal(without.trace.past, kept.trace.past)
    log_probs, words = kept.likeliest
    assert log_probs.shape == words.shape == (*without.words.shape, 3)


def test_the_likeliest_words_of_a_given_beginning_are_those_of_the_model():
    model = captioner()
    views = model.encode([photo()])
    state = model.decoder.start(model.project(views))
    first = model.decoder.step(state, torch.tensor([[START]]))[0].topk(3)
    found = Greedy(max_length=3)(
        model.decoder.step, state, 1, START, END, FORBIDDEN, beginning=[6], likeliest=3
    )
    assert torch.equal(found.likeliest[1][0, 0, 0], first.indices[0, 0])


def test_a_caption_wants_them_for_every_word():
    fields = ("a dog", ["a", "dog"], np.full((2, 1, 2), 0.5), -1, [-1, -1], (0, 0, 2, 1))
    with pytest.raises(ValueError, match="2 steps, not of 1"):
        Caption(*fields, likeliest=[[("a", -1.0)]])
    caption = Caption(*fields, likeliest=[[("a", -0.5)], [("cat", -np.inf), ("dog", -1.0)]])
    assert caption.to_dict()["likeliest"] == [[["a", -0.5]], [["cat", None], ["dog", -1.0]]]
