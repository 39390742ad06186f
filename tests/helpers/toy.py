"""A decoder with hard attention, small enough to enumerate its paths, with large weights."""

from __future__ import annotations

import torch
from helpers.tiny_decoder import with_large_weights
from helpers.tiny_views import one_row
from torch import Tensor

from caption.attention import AdditiveScore, Alignment, Attention, Multinoulli, ScoredAttention, Softmax
from caption.core.regions import Views
from caption.decoders import Gate, ShowAttendAndTellDecoder
from caption.objectives import CaptionBatch

REGIONS, WORDS = 3, 5


def toy(attention: Attention | None = None) -> ShowAttendAndTellDecoder:
    """In double precision, in training mode, without dropout."""
    hard = ScoredAttention(AdditiveScore(4), Multinoulli(expectation=0.0))
    return with_large_weights(attention or hard, (2, 3, 4, WORDS), 1.5, seed=5, gate=Gate()).train()


def soft_toy(alignment: Alignment | None = None) -> ShowAttendAndTellDecoder:
    """With soft attention."""
    return toy(ScoredAttention(AdditiveScore(4), alignment or Softmax()))


def problem(lengths: list[list[int]]) -> tuple[Views, CaptionBatch]:
    """Images and captions of the given lengths (B, K)."""
    generator = torch.Generator().manual_seed(6)
    counts = torch.tensor(lengths)
    regions = torch.randn(len(lengths), REGIONS, 2, generator=generator, dtype=torch.float64)
    words, targets = torch.randint(1, WORDS, (2, *counts.shape, int(counts.max())), generator=generator)
    return one_row(regions), CaptionBatch(words, targets, counts)


def gradient(value: Tensor, decoder: ShowAttendAndTellDecoder) -> Tensor:
    """The gradients of all the decoder's parameters as one vector; 0 without a gradient."""
    parameters = list(decoder.parameters())
    gradients = torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in gradients])
