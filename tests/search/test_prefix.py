"""Captions with a given beginning."""

from __future__ import annotations

import pytest
import torch
from helpers.tiny_captioner import captioner, photo

from caption.search import BeamSearch, Greedy, Sampling, Search
from caption.text.vocabulary import END


@torch.no_grad()
@pytest.mark.parametrize(
    "search",
    [
        Greedy(max_length=6),
        BeamSearch(beam_size=3, max_length=6, candidates=3),
        Sampling(max_length=6, samples=4, seed=0),
        Sampling(max_length=6, top_k=2, seed=0),
    ],
)
def test_every_caption_begins_so_and_goes_on_as_the_model_would(search: Search):
    model = captioner()
    regions = model.encode([photo(), photo(seed=1)])
    found = model.generate(regions, search, begin=[6, 5])
    assert (found.words[..., :2] == torch.tensor([6, 5])).all()
    assert (found.lengths >= 2).all()
    assert found.lengths.max() > 2
    # Their log-probabilities are the model's own.
    for image in range(2):
        state = model.decoder.start(model.project(model.encode([photo(seed=image)])))
        fed = torch.tensor([[1]])
        said = []
        for word in [*found.words[image, 0, : found.lengths[image, 0]].tolist(), END]:
            log_probs, state = model.decoder.step(state, fed)
            said.append(float(log_probs[0, 0, word]))
            fed = torch.tensor([[word]])
        steps = int(found.lengths[image, 0]) + int(found.finished[image, 0])
        assert found.word_log_probs[image, 0, :steps].tolist() == pytest.approx(said[:steps], abs=1e-4)
        assert float(found.log_probs[image, 0]) == pytest.approx(sum(said[:steps]), abs=1e-4)


def test_a_greedy_caption_with_its_own_beginning_is_the_same():
    model = captioner(search=Greedy(max_length=8))
    regions = model.encode([photo()])
    free = model.generate(regions)
    words = free.words[0, 0, : free.lengths[0, 0]].tolist()
    assert len(words) > 2
    for begin in (words[:1], words[:2], words):
        again = model.generate(regions, begin=begin)
        assert torch.equal(again.words, free.words)
        assert torch.equal(again.log_probs, free.log_probs)


def test_nothing_given_is_a_search_as_ever():
    model = captioner()
    regions = model.encode([photo()])
    assert torch.equal(model.generate(regions).log_probs, model.generate(regions, begin=[]).log_probs)
