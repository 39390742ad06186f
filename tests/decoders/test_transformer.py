"""The Transformer decoder before training."""

from __future__ import annotations

import pytest
import torch

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.decoders import TransformerDecoder


def test_the_scaled_word_vectors_begin_with_unit_variance():
    """√H E y, as large as the positions that are added."""
    torch.manual_seed(0)
    made = TransformerDecoder(ScoredAttention(AdditiveScore(8), Softmax()), 1, hidden_size=64, heads=2)
    made.build((6,), vocabulary_size=500, padding=0, start=1)
    scaled = made.embed.weight[1:] * 64**0.5
    assert scaled.std().item() == pytest.approx(1.0, rel=0.05)
