"""Scores of captions: BLEU, ROUGE-L, CIDEr, METEOR and SPICE, each with the protocol that made it."""

from caption.metrics.corpus import References
from caption.metrics.evaluation import DEFAULT_METRICS, METRICS, evaluate
from caption.metrics.own import Metric
from caption.metrics.score import MetricScore, Scores

__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "Metric",
    "MetricScore",
    "References",
    "Scores",
    "evaluate",
]
