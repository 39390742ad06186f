"""Attention guided by word detectors, against a transcription in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from helpers.tiny_views import WithoutEncoder, one_row
from helpers.toy import problem, soft_toy, toy
from torch import Tensor, nn

from caption.attention import Alignment, CompositionalDeAttention, Sigmoid, Softmax
from caption.attention.smoothing import smoothed
from caption.core.errors import UserError
from caption.core.regions import Regions, Views
from caption.objectives import CrossEntropy, DoublyStochastic, GuidedAttention, Term
from caption.objectives.word_detectors import WordDetectors

REFERENCES = [[[4, 2], [4, 5, 2]], [[4, 6, 2]], [[4, 6, 5, 6, 2]], [[4, 7, 2]], [[3, 2]]]
"""Of five images. Word 4 is in four of them; 5 and 6 in two; 7 in one; 2 and 3 are the end token and <unk>."""
LENGTHS = [[3, 1], [2, 2], [0, 0], [1, 0]]


class Mapped(nn.Module):
    """A refiner that changes the vectors."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.change = change

    def forward(self, views: Views) -> Views:
        return one_row(self.change(views[0].vectors))


def guided(
    terms: Sequence[Term] = (DoublyStochastic(0.5),), detection: float = 0.3, smoothing: float = 0.0
) -> GuidedAttention:
    """In double precision; words 2, 3 and 4 of the toy's 5 stand for words of captions."""
    objective = GuidedAttention(CrossEntropy([*terms]), 0.7, detection, 2.0, words=2, smoothing=smoothing)
    objective.build(4, (2,), 5)
    objective.detectors.index[:] = torch.tensor([-1, -1, 0, -1, 1])
    objective.detectors.prior[:] = torch.tensor([0.2, 0.4])
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        objective.detectors.layer.weight.copy_(2 * torch.randn(2, 2, generator=generator))
        objective.detectors.layer.bias.copy_(torch.tensor([0.5, 1.0]))
    return objective.double().train()


def log_odds(objective: GuidedAttention, vectors: np.ndarray) -> np.ndarray:
    """(B, L, W)."""
    layer = objective.detectors.layer
    at_first = 1 - (1 - objective.detectors.prior.numpy()) ** (1 / vectors.shape[1])
    own = vectors @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    return own + np.log(at_first / (1 - at_first))


@pytest.mark.parametrize("alignment", [Softmax(), Sigmoid()], ids=["softmax", "sigmoid"])
def test_the_loss_is_the_transcription(alignment: Alignment):
    """Weights that do not sum to one are compared as shares."""
    decoder, made = soft_toy(alignment), guided()
    captioner, (views, captions) = WithoutEncoder(decoder), problem(LENGTHS)
    loss = made(captioner, views, captions)
    inner = made.objective(captioner, views, captions)
    weights = inner.unrolled.unpack(inner.unrolled.trace.weights).detach().numpy()
    weights = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-9)
    scores = log_odds(made, views[0].vectors.numpy())
    in_region = 1 / (1 + np.exp(-scores))
    in_image = 1 - (1 - in_region).prod(1)
    index, prior = made.detectors.index.tolist(), made.detectors.prior.tolist()
    detection = divergence = 0.0
    for image, lengths in enumerate(LENGTHS):
        texts = [captions.targets[image, k, :length].tolist() for k, length in enumerate(lengths) if length]
        if not texts:
            continue
        for detector, word in ((0, 2), (1, 4)):
            share = sum(word in text for text in texts) / len(texts)
            p = in_image[image, detector]
            detection -= share * np.log(p) + (1 - share) * np.log(1 - p)
        for k, text in enumerate(texts):
            for step, word in enumerate(text):
                detector = index[word]
                if detector < 0:
                    continue
                seen = np.exp(2 * scores[image, :, detector])
                seen /= seen.sum()
                gain = np.clip(np.log(in_image[image, detector] / prior[detector]), 0, 1)
                divergence += gain * (seen * np.log(seen / weights[image, k, step])).sum()
    assert divergence > 0.1
    expected = inner.value.item() + 0.3 * detection / 3 + 0.7 * divergence / 5  # 3 images, 5 captions
    assert loss.value.item() == pytest.approx(expected, rel=1e-6)
    assert loss.logged["detection"].item() == pytest.approx(detection / 3, rel=1e-6)
    assert loss.logged["guidance"].item() == pytest.approx(divergence / 5, rel=1e-6)


def test_the_divergence_moves_the_attention_and_not_the_detectors():
    decoder, made = soft_toy(), guided(detection=0.0)
    batch = WithoutEncoder(decoder), *problem(LENGTHS)
    layer = decoder.attention.score.query
    plain = torch.autograd.grad(made.objective(*batch).value, layer.weight)[0]
    value = made(*batch).value
    weights = [layer.weight, made.detectors.layer.weight]
    of_query, of_detectors = torch.autograd.grad(value, weights, materialize_grads=True)
    assert (of_query - plain).abs().max() > 1e-3
    assert not of_detectors.any()


def test_words_in_more_than_half_of_the_images_and_special_ones_are_not_detected():
    detectors = WordDetectors(2, 9, words=5)
    for _ in range(2):  # when training resumes
        detectors.prepare(iter(REFERENCES))
    assert detectors.index.tolist() == [-1, -1, -1, -1, -1, 0, 1, 2, -1]
    assert detectors.prior.tolist() == pytest.approx([0.4, 0.4, 0.2, 0.5, 0.5])
    detectors = WordDetectors(2, 9, words=2)
    detectors.prepare(REFERENCES)
    assert detectors.index.tolist() == [-1, -1, -1, -1, -1, 0, 1, -1, -1]  # the most frequent ones


@pytest.mark.parametrize("smoothing", [0.0, 0.9])
def test_log_odds_are_averaged_over_neighbouring_cells_and_none_are_high_outside_the_photo(smoothing: float):
    made, vectors = guided(smoothing=smoothing).detectors, torch.randn(2, 6, 2, dtype=torch.float64)
    mask = torch.tensor([[True] * 6, [True, True, False, True, False, True]])
    for real in (None, mask):
        plain = guided().detectors(Regions(vectors, (2, 3), real))
        scores = made(Regions(vectors, (2, 3), real))
        expected = smoothed(plain.mT, (2, 3), smoothing, real).mT if smoothing else plain
        shown = torch.ones_like(mask) if real is None else real
        torch.testing.assert_close(scores[shown], expected[shown])
        assert (scores[~shown] < -1e8).all()


def test_signed_maps_and_those_over_other_regions_are_refused():
    signed = toy(CompositionalDeAttention(4))
    with pytest.raises(UserError, match=r"weights of at least 0.*some negative"):
        guided(terms=[])(WithoutEncoder(signed), *problem([[2]]))
    captioner = WithoutEncoder(soft_toy(), Mapped(lambda vectors: vectors[:, :2]))
    with pytest.raises(UserError, match="maps of 2 cells over 3 regions"):
        guided()(captioner, *problem([[2]]))


@pytest.mark.parametrize(
    "wrong", [{"weight": -1.0}, {"detection": -1.0}, {"sharpness": 0.0}, {"words": 0}, {"smoothing": -1.0}]
)
def test_impossible_arguments_are_refused(wrong: dict[str, float]):
    with pytest.raises(UserError, match=r"weight .* detection .* words"):
        GuidedAttention(**wrong)


def test_detectors_read_the_regions_before_a_refiner():
    views, captions = problem([[3], [2]])

    def detection(change: Callable[[Tensor], Tensor], views: Views) -> Tensor:
        return guided()(WithoutEncoder(soft_toy(), Mapped(change)), views, captions).logged["detection"]

    plain = detection(lambda vectors: vectors, views)
    assert detection(lambda vectors: -vectors, views) == plain
    other = one_row(-views[0].vectors.half())  # as precomputed regions are
    assert (detection(lambda vectors: -vectors.double(), other) - plain).abs() > 1e-3
