"""Alignments: from scores to weights, one per file."""

from caption.attention.alignments.gumbel import GumbelSoftmax
from caption.attention.alignments.multinoulli import Multinoulli
from caption.attention.alignments.softmax import Softmax

__all__ = ["GumbelSoftmax", "Multinoulli", "Softmax"]
