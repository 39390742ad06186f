"""The Transformer decoder before training, and the queries of its unroll."""

from __future__ import annotations

import pytest
import torch
from helpers.tiny_views import one_row

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.decoders import TransformerDecoder


def test_the_scaled_word_vectors_begin_with_unit_variance():
    """√H E y, as large as the positions that are added."""
    torch.manual_seed(0)
    model = TransformerDecoder(ScoredAttention(AdditiveScore(8), Softmax()), 1, hidden_size=64, heads=2)
    model.build((6,), vocabulary_size=500, padding=0, start=1)
    scaled = model.embed.weight[1:] * 64**0.5
    assert scaled.std().item() == pytest.approx(1.0, rel=0.05)


def test_the_queries_of_the_unroll_have_no_gradient():
    model = TransformerDecoder(ScoredAttention(AdditiveScore(8), Softmax()), 1, hidden_size=8, heads=2)
    model.build((6,), vocabulary_size=9, padding=0, start=1)
    unrolled = model(
        model.project(one_row(torch.randn(1, 4, 6))), torch.tensor([[[1, 4, 5]]]), torch.tensor([[2]])
    )
    assert unrolled.queries.shape == (2, 8)
    assert unrolled.logits.requires_grad
    assert not unrolled.queries.requires_grad
