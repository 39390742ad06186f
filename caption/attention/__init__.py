"""Attention mechanisms: one idea per file, its equation on top."""

from caption.attention.alignments.softmax import Softmax
from caption.attention.base import Attention, Look, Memory
from caption.attention.hard import GumbelSoftmax, Multinoulli, at_test
from caption.attention.scored import Aligned, Alignment, Score, ScoredAttention
from caption.attention.scores.additive import AdditiveScore

__all__ = [
    "AdditiveScore",
    "Aligned",
    "Alignment",
    "Attention",
    "GumbelSoftmax",
    "Look",
    "Memory",
    "Multinoulli",
    "Score",
    "ScoredAttention",
    "Softmax",
    "at_test",
]
