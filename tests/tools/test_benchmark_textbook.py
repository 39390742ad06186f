"""The textbook form of the decoder: the same numbers, gradients included."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.decoders import DeepOutput, Gate, InitialState, LSTMDecoder
from caption.objectives import CaptionBatch
from tools.benchmark.core import build, caption_loss
from tools.benchmark.textbook import gradients, textbook_of

IMAGES, REGIONS, REGION_SIZE, WORDS, START = 5, 6, 7, 11, 1


def decoder() -> LSTMDecoder:
    """Small, in double precision."""
    torch.manual_seed(0)
    made = LSTMDecoder(
        ScoredAttention(AdditiveScore(4), Softmax()),
        embedding_size=3,
        hidden_size=8,
        initial=InitialState(dropout=0.0),
        gate=Gate(),
        readout=DeepOutput(dropout=0.0),
        forget_bias=1.0,
    )
    return build(made, REGION_SIZE, WORDS).double()


def batch() -> tuple[Tensor, CaptionBatch]:
    """One caption per image, with unsorted lengths."""
    lengths = torch.tensor([3, 5, 1, 4, 5])
    words = torch.randint(2, WORDS, (IMAGES, 6))
    words[:, 0] = START
    real = torch.arange(5) < lengths[:, None]
    regions = torch.randn(IMAGES, REGIONS, REGION_SIZE, dtype=torch.float64)
    inputs, targets = words[:, :-1] * real, words[:, 1:] * real
    return regions, CaptionBatch(inputs[:, None], targets[:, None], lengths[:, None])


def test_loss_and_every_gradient_are_those_of_the_decoder():
    made, (regions, captions) = decoder(), batch()
    reference = textbook_of(made)
    ours = caption_loss(made, regions, captions)
    theirs = reference.loss(regions, *(tensor[:, 0] for tensor in captions))
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=0)  # the penalty's sums are in single precision
    ours.backward()
    theirs.backward()
    found, expected = gradients(made), gradients(reference)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(
            gradient, expected[name], rtol=1e-5, atol=1e-7, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert sum(gradient.numel() for gradient in found.values()) == sum(p.numel() for p in made.parameters())


def test_it_has_copies_of_the_weights_not_the_weights():
    made = decoder()
    reference = textbook_of(made)
    own = {p.data_ptr() for p in made.parameters()}
    assert own.isdisjoint(p.data_ptr() for p in reference.parameters())
