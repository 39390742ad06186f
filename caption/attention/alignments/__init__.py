"""Alignments: from scores to weights, one per file."""

from caption.attention.alignments.softmax import Softmax

__all__ = ["Softmax"]
