"""Scores: how well a query and a region go together, one per file."""

from caption.attention.scores.additive import AdditiveScore

__all__ = ["AdditiveScore"]
