"""Scores, which measure the similarity of a query and a region, one per file."""

from caption.attention.scores.additive import AdditiveScore
from caption.attention.scores.cosine import CosineScore
from caption.attention.scores.dot import DotScore, ScaledDotScore
from caption.attention.scores.general import ActivatedGeneralScore, GeneralScore
from caption.attention.scores.learned_query import FeedForwardScore
from caption.attention.scores.location_sensitive import LocationSensitiveScore
from caption.attention.scores.mlp import MLPScore

__all__ = [
    "ActivatedGeneralScore",
    "AdditiveScore",
    "CosineScore",
    "DotScore",
    "FeedForwardScore",
    "GeneralScore",
    "LocationSensitiveScore",
    "MLPScore",
    "ScaledDotScore",
]
