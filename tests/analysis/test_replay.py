"""Replays of captions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.planted import caption_of
from helpers.tiny_captioner import captioner, photo

from caption.analysis.replay import Replay, sentences
from caption.attention import Multinoulli
from caption.encoders import LinearRefiner
from caption.text.vocabulary import PAD, START, UNKNOWN

PHOTOS = [photo(seed=seed) for seed in range(5)]


def test_batches_hold_photos_in_order_and_anything_may_be_one():
    model = captioner()
    whole = [caption.words for caption in model.describe(PHOTOS)]
    batches = list(sentences(model, iter(PHOTOS), batch_size=2))
    assert [len(batch.captions) for batch in batches] == [2, 2, 1]
    assert [caption.words for batch in batches for caption in batch.captions] == whole
    (alone,) = sentences(model, PHOTOS[0])
    assert alone.captions[0].words == whole[0]


def test_words_are_fed_one_late_and_strangers_are_unknown():
    model = captioner()
    captions = [caption_of("a cat flies", np.ones((3, 8, 8))), caption_of("dog", np.ones((1, 8, 8)))]
    (batch,) = sentences(model, PHOTOS[:2], captions)
    a, cat, dog = (model.vocabulary.words.index(word) for word in ("a", "cat", "dog"))
    assert batch.words.tolist() == [[a, cat, UNKNOWN], [dog, PAD, PAD]]
    assert batch.inputs.tolist() == [[START, a, cat], [START, dog, PAD]]
    assert batch.lengths.tolist() == [3, 1]
    steps = list(Replay(model.decoder).steps(batch))
    assert [step.rows.tolist() for step in steps] == [[0, 1], [0], [0]]
    assert [step.words.tolist() for step in steps] == [[a, dog], [cat], [UNKNOWN]]


def test_photos_and_captions_go_together():
    for count, complaint in ((1, "fewer captions"), (3, "more captions")):
        with pytest.raises(ValueError, match=complaint):
            list(sentences(captioner(), PHOTOS[:2], [caption_of("dog", np.ones((1, 8, 8)))] * count))


def test_a_caption_without_words_has_no_steps():
    model, empty = captioner(), caption_of("", np.zeros((0, 8, 8)))
    (both,) = sentences(model, PHOTOS[:2], [empty, caption_of("dog", np.ones((1, 8, 8)))])
    assert [step.rows.tolist() for step in Replay(model.decoder).steps(both)] == [[1]]
    (batch,) = sentences(model, PHOTOS[0], [empty])
    assert list(Replay(model.decoder).steps(batch)) == []


def test_the_gradient_is_that_of_finite_differences():
    model = captioner().double()
    (batch,) = sentences(captioner(), PHOTOS[:2])
    batch = batch._replace(views=(batch.views[0]._replace(vectors=batch.views[0].vectors.double()),))
    replay = Replay(model.decoder)
    step = list(replay.steps(batch))[1]
    gradient = replay.gradient(step)
    (view,) = step.views
    assert gradient.shape == view.vectors.shape
    direction = torch.randn(view.vectors.shape, generator=torch.Generator().manual_seed(0)).double()

    def log_p(delta: float) -> torch.Tensor:
        moved = view._replace(vectors=view.vectors + delta * direction)
        state = step.state._replace(shared=model.decoder.project((moved,)))
        with torch.no_grad():
            return step.of_word(replay.decoder.step(state, step.inputs)[0])[:, 0]

    delta = 1e-2  # log-probabilities are in single precision
    numeric = (log_p(delta) - log_p(-delta)) / (2 * delta)
    assert (gradient * direction).sum((1, 2)).tolist() == pytest.approx(numeric.tolist(), rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("chosen", ["argmax", "sample"])
def test_hard_attention_is_replayed_in_expectation(chosen):
    """Replaying its own weights changes nothing; otherwise every curve would begin with an artificial jump."""
    model = captioner(alignment=Multinoulli(at_test=chosen))
    replay = Replay(model.decoder)
    torch.manual_seed(0)
    for batch in sentences(model, PHOTOS, batch_size=3):
        for step in replay.steps(batch):
            again = replay.rerun(step, step.maps)[:, 0]
            assert torch.allclose(again, step.log_probs, atol=1e-5)
            assert (replay.gradient(step).norm(dim=-1) > 0).all()  # every region has an effect
    assert [part.at_test for part in model.modules() if isinstance(part, Multinoulli)] == [chosen]


def test_regions_are_the_refined_ones():
    model = captioner(refiner=LinearRefiner(5))
    (view,) = model.refine(model.encode(PHOTOS[:2]))
    (batch,) = sentences(model, PHOTOS[:2])
    assert torch.equal(batch.views[0].vectors, view.vectors)
