"""A small LSTM decoder with large weights."""

from __future__ import annotations

from typing import Any

import torch
from helpers.tiny_views import one_row
from torch import Tensor

from caption.attention import AdditiveScore, Alignment, Attention, ScoredAttention, Softmax
from caption.decoders import DeepOutput, InitialState, ShowAttendAndTellDecoder, Unrolled

REGION_SIZE, HIDDEN, WORDS, PAD = 3, 4, 7, 0


def decoder(
    alignment: Alignment | None = None,
    seed: int = 0,
    dropout: float = 0.0,
    **options: Any,
) -> ShowAttendAndTellDecoder:
    """A decoder in double precision, by default without dropout."""
    attention = ScoredAttention(AdditiveScore(6), alignment or Softmax())
    sizes = (REGION_SIZE, 5, HIDDEN, WORDS)
    return with_large_weights(attention, sizes, seed=seed, dropout=dropout, **options)


def with_large_weights(
    attention: Attention,
    sizes: tuple[int, int, int, int],
    scale: float = 1.0,
    seed: int = 0,
    dropout: float = 0.0,
    **options: Any,
) -> ShowAttendAndTellDecoder:
    """The sizes are those of region vectors, word vectors, the hidden state and the vocabulary."""
    region_size, embedding_size, hidden_size, words = sizes
    options.setdefault("initial", InitialState(dropout=dropout))
    options.setdefault("readout", DeepOutput(dropout=dropout))
    model = ShowAttendAndTellDecoder(attention, embedding_size, hidden_size, **options)
    model.build((region_size,), words, padding=PAD, start=1)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return model.double()


def images(count: int, regions: int = 6, seed: int = 1) -> Tensor:
    """(B, L, D) float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, regions, REGION_SIZE, generator=generator, dtype=torch.float64)


def sentences(lengths: Tensor, longest: int | None = None, seed: int = 2) -> Tensor:
    """(B, K, T) int64 words, padded after `lengths` (B, K)."""
    generator = torch.Generator().manual_seed(seed)
    steps = int(lengths.max()) if longest is None else longest
    words = torch.randint(1, WORDS, (*lengths.shape, steps), generator=generator)
    return words.masked_fill(torch.arange(steps) >= lengths[..., None], PAD)


def unroll(model: ShowAttendAndTellDecoder, regions: Tensor, words: Tensor, lengths: Tensor) -> Unrolled:
    """Teacher forcing on regions (B, L, D)."""
    return model(model.project(one_row(regions)), words, lengths)
