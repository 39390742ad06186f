"""Attention mechanisms: one idea per file, its equation on top.

Most mechanisms are a score (`scores/`) joined to an alignment (`alignments/`) by `ScoredAttention`.
"""

from caption.attention.alignments import GumbelSoftmax, Multinoulli, Softmax
from caption.attention.base import Attention, AttentionOutput, Query, QuerySizes, Reading, Weighed
from caption.attention.edited import edited
from caption.attention.scored import Aligned, Alignment, Choice, Score, ScoredAttention, ScoredMemory
from caption.attention.scores import AdditiveScore
from caption.attention.stochastic import Stochastic, at_test
from caption.attention.weights import entropy

__all__ = [
    "AdditiveScore",
    "Aligned",
    "Alignment",
    "Attention",
    "AttentionOutput",
    "Choice",
    "GumbelSoftmax",
    "Multinoulli",
    "Query",
    "QuerySizes",
    "Reading",
    "Score",
    "ScoredAttention",
    "ScoredMemory",
    "Softmax",
    "Stochastic",
    "Weighed",
    "at_test",
    "edited",
    "entropy",
]
