"""tools/textbook.py, the reference of the benchmark: the same numbers as the decoder, gradients included."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.decoders import DeepOutput, Gate, InitialState, LSTMDecoder
from caption.objectives import Captions, CrossEntropy

IMAGES, REGIONS, REGION_SIZE, WORDS, PAD, START = 5, 6, 7, 11, 0, 1


@pytest.fixture(scope="module")
def textbook() -> Iterator[Any]:
    """The module."""
    folder = str(Path(__file__).parents[2] / "tools")
    sys.path.insert(0, folder)
    try:
        import textbook

        yield textbook
    finally:
        sys.path.remove(folder)


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
    made.build(REGION_SIZE, WORDS, padding=PAD, start=START)
    return made.double()


def batch() -> tuple[Tensor, Captions]:
    """One caption an image, of different lengths, in no order."""
    lengths = torch.tensor([3, 5, 1, 4, 5])
    words = torch.randint(2, WORDS, (IMAGES, 6))
    words[:, 0] = START
    real = torch.arange(5) < lengths[:, None]
    regions = torch.randn(IMAGES, REGIONS, REGION_SIZE, dtype=torch.float64)
    inputs, targets = words[:, :-1] * real, words[:, 1:] * real
    return regions, Captions(inputs[:, None], targets[:, None], lengths[:, None])


def test_loss_and_every_gradient_are_those_of_the_decoder(textbook: Any):
    made, (regions, captions) = decoder(), batch()
    reference = textbook.textbook_of(made)
    ours = CrossEntropy()(made, made.project(regions), captions).value
    theirs = reference.loss(regions, *(tensor[:, 0] for tensor in captions))
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=0)  # the penalty's sums are in single precision
    ours.backward()
    theirs.backward()
    pairs = textbook.gradients(made, reference)
    for name, own, other in pairs:
        torch.testing.assert_close(
            own, other, rtol=1e-5, atol=1e-7, msg=lambda text, name=name: f"{name}: {text}"
        )
    compared = sum(own.numel() for _, own, _ in pairs)
    biases = 2 * 8 + 1 + 3 + WORDS  # of initial h and c, gate, L_h, L_o
    assert compared + biases == sum(p.numel() for p in made.parameters())


def test_it_has_copies_of_the_weights_not_the_weights(textbook: Any):
    made = decoder()
    reference = textbook.textbook_of(made)
    own = {p.data_ptr() for p in made.parameters()}
    assert own.isdisjoint(p.data_ptr() for p in reference.parameters())
