"""Posterior attention: Bayes' rule over single looks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import tiny_captioner

from caption.analysis.interventions import force_everywhere
from caption.analysis.posterior_attention import posterior
from caption.analysis.reference_attention import attend_references
from caption.attention import AdditiveScore, MultiHeadAttention, Multinoulli, SentinelAttention
from caption.captioner import Captioner
from caption.decoders import AdaptiveDecoder, ShowAndTellDecoder, ShowAttendAndTellDecoder
from caption.errors import UserError
from caption.search import Greedy

PHOTO = tiny_captioner.photo()


def model(kind: str) -> Captioner:
    if kind == "hard":
        return tiny_captioner.captioner(alignment=Multinoulli())
    sizes = {"embedding_size": 6, "hidden_size": 7}
    torch.manual_seed(0)
    decoders = {
        "heads": lambda: ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=4), **sizes),
        "sentinel": lambda: AdaptiveDecoder(SentinelAttention(AdditiveScore(8)), **sizes),
    }
    return tiny_captioner.captioner(**({"decoder": decoders[kind]()} if kind in decoders else {}))


@pytest.mark.parametrize("kind", ["soft", "hard", "heads", "sentinel"])
def test_it_is_bayes_rule_over_looks_at_every_region(kind: str):
    made = model(kind)
    (found,) = posterior(made, PHOTO)
    assert len(found.words) > 2
    (prior,) = attend_references(made, [PHOTO], [[" ".join(found.words)]])
    for step in range(len(found.words)):
        # Another path through the code: the whole caption again, with an edit at this step.
        joint = prior.weights[step] * force_everywhere(made, PHOTO, step).probability
        np.testing.assert_allclose(found.weights[step], joint / joint.sum(), rtol=1e-3, atol=1e-6)
        assert np.abs(found.weights[step] - prior.weights[step]).max() > 1e-4


def test_captions_given_word_by_word_keep_all_but_their_weights_and_each_photo_is_encoded_once():
    made = model("soft")
    one, other = PHOTO, tiny_captioner.photo(40, 60, seed=1)
    given = attend_references(made, [one, other], [["a dog runs", "a zebra"], ["the cat sits"]])
    encoded: list[int] = []
    made.encoder.register_forward_hook(lambda _, inputs, __: encoded.append(len(inputs[0])))
    every = posterior(made, [one, one, other], given)
    chosen = posterior(made, [one, one, other], given, words={0: [1], 2: [0, 2]})
    assert encoded == [2, 2]
    for number, words in enumerate(([1], [], [0, 2])):
        assert every[number].text == given[number].text
        assert every[number].box == given[number].box
        assert every[number].properties.is_distribution
        kept = np.isin(np.arange(len(given[number].words)), words)[:, None, None]
        np.testing.assert_allclose(chosen[number].weights, every[number].weights * kept, rtol=1e-5)
    (alone,) = posterior(made, [one], given[1:2], batch_size=2)
    np.testing.assert_allclose(alone.weights, every[1].weights, rtol=1e-4)


def test_it_needs_attention():
    made = model("soft")
    blind = Captioner(
        made.encoder, ShowAndTellDecoder(6, 7), made.vocabulary, made.transform, Greedy(5)
    ).eval()
    with pytest.raises(UserError, match="no attention"):
        posterior(blind, PHOTO)
