"""The likeliest words of each step: those of the step that emitted the word, whatever the search."""

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner, photo

from caption.result import Caption
from caption.search import BeamSearch, Greedy, Sampling
from caption.text.vocabulary import END, PAD, START


@pytest.mark.parametrize(
    "search", [Greedy(max_length=6), BeamSearch(3, 6, candidates=3), Sampling(max_length=6)]
)
def test_they_are_those_of_teacher_forcing(search):
    model = captioner(search=search)
    best = model.describe([photo(), photo(40, 80, 1)])[1]
    views = model.encode([photo(40, 80, 1)])
    for caption in (best, *best.alternatives):
        ids = torch.tensor([START, *(model.vocabulary[word] for word in caption.words)])
        with torch.no_grad():
            unrolled = model(views, ids[None, None], torch.tensor([[len(ids)]]))
        logits = unrolled.unpack(unrolled.logits)[0, 0]
        log_probs = logits.log_softmax(-1)
        assert len(caption.likeliest) == len(caption.words)
        for step, (word, told) in enumerate(zip(caption.words, caption.likeliest, strict=True)):
            expected, order = log_probs[step].topk(5)
            names = ["(end)" if each == END else model.vocabulary[int(each)] for each in order]
            kept = [
                (n, p)
                for n, p, each in zip(names, expected.tolist(), order, strict=True)
                if each not in (PAD, START)
            ]
            assert [name for name, _ in told] == [name for name, _ in kept]
            np.testing.assert_allclose([p for _, p in told], [p for _, p in kept], atol=1e-4)
            if isinstance(search, Greedy):
                assert word == next(name for name, _ in told if name not in ("<unk>", "(end)"))


def test_search_finds_the_same_with_and_without_them():
    model = captioner(search=BeamSearch(3, 8, candidates=2))
    views = model.encode([photo(), photo(40, 80, 1), photo(80, 80, 2)])
    plain, noted = model.generate(views), model.generate(views, likeliest=3)
    assert (plain.words == noted.words).all()
    assert (plain.log_probs == noted.log_probs).all()
    assert (plain.trace.weights == noted.trace.trace.weights).all()
    assert noted.trace.words.shape == (*plain.words.shape, 3)


def test_a_caption_wants_them_for_every_word():
    weights = np.full((2, 1, 2), 0.5)
    fields = ("a dog", ["a", "dog"], weights, -1, [-1, -1], (0, 0, 2, 1))
    with pytest.raises(ValueError, match="2 steps, not of 1"):
        Caption(*fields, likeliest=[[("a", -1.0)]])
    told = [[("a", -0.5)], [("cat", -np.inf), ("dog", -1.0)]]
    assert Caption(*fields, likeliest=told).to_dict()["likeliest"] == [
        [["a", -0.5]],
        [["cat", None], ["dog", -1.0]],
    ]
    assert Caption(*fields).to_dict()["likeliest"] is None
