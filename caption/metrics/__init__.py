"""Scores of captions: BLEU, ROUGE-L, CIDEr, METEOR and SPICE, each with the protocol that made it."""

from caption.metrics.corpus import References
from caption.metrics.evaluation import DEFAULT_METRICS, METRICS, evaluate
from caption.metrics.score import MetricScore, Scores
from caption.text.tokenizer import TOKENIZERS, Tokenizer, get_tokenizer

__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "TOKENIZERS",
    "MetricScore",
    "References",
    "Scores",
    "Tokenizer",
    "evaluate",
    "get_tokenizer",
]
