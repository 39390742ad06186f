"""Scheduled sampling: which words are replaced, how often, and what is never fed."""

from __future__ import annotations

import pytest
import torch
from helpers.tiny_views import WithoutEncoder
from helpers.toy import problem, soft_toy
from torch import nn

from caption.objectives import CaptionBatch, CrossEntropy, Loss, Objective, ScheduledSampling
from caption.text.vocabulary import START

LENGTHS = [[4, 2, 0], [3, 4, 1]]


class Recorded(Objective):
    """Keeps the captions that it gets."""

    def forward(self, captioner, views, captions: CaptionBatch) -> Loss:
        self.captions = captions
        return CrossEntropy([])(captioner, views, captions)


def run(probability: float, ramp: int = 0, batches: int = 1, training: bool = True):
    decoder = soft_toy()
    # Words 0 to 3 are special, so one word is left: whatever is drawn is 4.
    views, captions = problem(LENGTHS)
    captions.words[..., 0] = START
    captions.words[..., 1:] = 3
    inner = Recorded()
    objective = ScheduledSampling(inner, probability, ramp).train(training)
    torch.manual_seed(0)
    losses = [objective(WithoutEncoder(decoder), views, captions) for _ in range(batches)]
    return captions, inner.captions, losses


def test_at_one_every_word_after_the_first_is_the_models_and_at_zero_and_in_evaluation_none():
    before, after, _ = run(1.0)
    fed = torch.arange(4) < torch.tensor(LENGTHS)[..., None]
    assert (after.words[..., 0] == START).all()
    assert (after.words[..., 1:][fed[..., 1:]] == 4).all()
    assert torch.equal(after.words[~fed], before.words[~fed])
    assert torch.equal(after.targets, before.targets)
    for probability, training in ((0.0, True), (1.0, False)):
        before, after, _ = run(probability, training=training)
        assert torch.equal(after.words, before.words)


def test_the_probability_rises_over_the_ramp_and_stays():
    _, _, losses = run(0.5, ramp=4, batches=6)
    probabilities = [loss.logged["scheduled_sampling"].item() for loss in losses]
    assert probabilities == pytest.approx([0, 0.125, 0.25, 0.375, 0.5, 0.5])


def test_words_are_drawn_from_the_model_given_the_words_before():
    decoder = soft_toy()
    decoder.readout.to_words = nn.Linear(3, 8).double()  # words 4 to 7
    decoder.embed = nn.Embedding(8, 3).double()
    views, captions = problem([[2]])
    words, targets = (ids.repeat(1, 4000, 1)[..., :2] for ids in captions[:2])
    captions = CaptionBatch(words, targets, torch.full((1, 4000), 2))
    captioner = WithoutEncoder(decoder)
    unrolled = captioner.unroll(views, captions.words, captions.lengths)
    logits = unrolled.unpack(unrolled.logits)[0, 0, 0]
    expected = logits[4:].softmax(-1)
    inner = Recorded()
    torch.manual_seed(0)
    ScheduledSampling(inner, 1.0)(captioner, views, captions)
    frequencies = torch.bincount(inner.captions.words[0, :, 1], minlength=8) / 4000
    assert frequencies[:4].sum() == 0
    torch.testing.assert_close(frequencies[4:].double(), expected, atol=0.03, rtol=0)
