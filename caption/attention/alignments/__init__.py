"""Alignments, which turn scores into weights, one per file."""

from caption.attention.alignments.gumbel import GumbelSoftmax
from caption.attention.alignments.hard import Multinoulli
from caption.attention.alignments.local import FollowingWindow, PredictedWindow
from caption.attention.alignments.soft import Softmax
from caption.attention.alignments.sparse import Entmax15, Sparsemax

__all__ = [
    "Entmax15",
    "FollowingWindow",
    "GumbelSoftmax",
    "Multinoulli",
    "PredictedWindow",
    "Softmax",
    "Sparsemax",
]
