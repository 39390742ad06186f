"""Replays of captions: the model's own, people's, and posterior attention."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.planted import caption_of
from helpers.tiny_captioner import captioner, photo

from caption.analysis.interventions import force_everywhere
from caption.analysis.posterior_attention import posterior
from caption.analysis.reference_attention import attend_references
from caption.analysis.replay import PhotoNumbers, Replay, sentences
from caption.attention import AdditiveScore, MultiHeadAttention, Multinoulli, SentinelAttention
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.decoders import AdaptiveDecoder, ShowAndTellDecoder, ShowAttendAndTellDecoder
from caption.encoders import LinearRefiner
from caption.search import Greedy
from caption.text.vocabulary import PAD, START, UNKNOWN

PHOTOS = [photo(seed=seed) for seed in range(5)]
PHOTO = photo()


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


def test_captions_of_one_photo_share_its_number_also_in_other_batches():
    path, pixels, black = "a.jpg", np.zeros((2, 2, 3)), io.BytesIO()
    numbers = PhotoNumbers()
    photos = [path, pixels, PHOTO, Path(path), b"x", black, b"x", pixels, np.zeros((2, 2, 3)), black]
    assert [numbers.add(one) for one in photos] == [0, 1, 2, 0, 4, 5, 4, 1, 8, 5]
    # Objects that are gone are others, even where a new one has their id.
    numbers = PhotoNumbers()
    assert [numbers.add(np.zeros((64, 64, 3))) for _ in range(9)] == list(range(9))
    captions = [caption_of("dog", np.ones((1, 8, 8)))] * 4
    found = sentences(captioner(), [PHOTO, PHOTO, PHOTOS[1], PHOTO], captions, batch_size=2)
    assert [batch.images.tolist() for batch in found] == [[0, 0], [2, 0]]


def test_photos_and_captions_go_together():
    for count, complaint in ((1, "fewer captions"), (3, "more captions")):
        with pytest.raises(ValueError, match=complaint):
            list(sentences(captioner(), PHOTOS[:2], [caption_of("dog", np.ones((1, 8, 8)))] * count))


def test_a_caption_without_words_has_no_steps():
    captions = [caption_of("", np.zeros((0, 8, 8))), caption_of("dog", np.ones((1, 8, 8)))]
    (batch,) = sentences(captioner(), PHOTOS[:2], captions)
    assert [step.rows.tolist() for step in Replay(captioner().decoder).steps(batch)] == [[1]]


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


# -- people's captions ---------------------------------------------------------------------------------------------


def test_weights_and_log_probabilities_are_those_of_teacher_forcing():
    made, texts = captioner(), [["A dog runs .", "the cat sits"], ["a dog"]]
    photos = [photo(80, 40), photo(40, 60, seed=1)]
    found = attend_references(made, photos, texts, batch_size=2)
    assert [each.words for each in found] == [["a", "dog", "runs"], ["the", "cat", "sits"], ["a", "dog"]]
    assert [each.image for each in found] == [photos[0], photos[0], photos[1]]
    for caption, source in zip(found, (photos[0], photos[0], photos[1]), strict=True):
        ids = torch.tensor([[[made.vocabulary[word] for word in caption.words]]])
        fed = torch.cat((torch.full_like(ids[..., :1], START), ids[..., :-1]), -1)
        with torch.no_grad():
            unrolled = made.unroll(made.encode([source]), fed, torch.tensor([[ids.shape[2]]]))
        weights = unrolled.unpack(unrolled.trace.weights)[0, 0].view(-1, *caption.weights.shape[1:])
        np.testing.assert_allclose(caption.weights, weights.numpy(), rtol=1e-5)
        log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))[0, 0].gather(1, ids[0, 0][:, None])[:, 0]
        np.testing.assert_allclose(caption.word_log_probs, log_probs.numpy(), rtol=1e-4)
        assert caption.log_prob == pytest.approx(float(log_probs.sum()), rel=1e-4)
        assert not caption.finished
    assert found[0].box == (20, 0, 60, 40)
    assert found[2].box == (0, 10, 40, 50)


# -- posterior attention: Bayes' rule over single looks --------------------------------------------------------


def model(kind: str) -> Captioner:
    if kind == "hard":
        return captioner(alignment=Multinoulli())
    sizes = {"embedding_size": 6, "hidden_size": 7}
    torch.manual_seed(0)
    decoders = {
        "heads": lambda: ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=4), **sizes),
        "sentinel": lambda: AdaptiveDecoder(SentinelAttention(AdditiveScore(8)), **sizes),
    }
    return captioner(**({"decoder": decoders[kind]()} if kind in decoders else {}))


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
    one, other = PHOTO, photo(40, 60, seed=1)
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
