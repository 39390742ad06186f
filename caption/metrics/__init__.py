"""How good captions are: BLEU, ROUGE-L, CIDEr and METEOR, with the protocol that made each number."""

from caption.metrics.corpus import References
from caption.metrics.score import Score, Scores
from caption.metrics.scores import DEFAULT_METRICS, METRICS, evaluate
from caption.text.tokenizer import TOKENIZERS, Tokenizer, get_tokenizer

__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "TOKENIZERS",
    "References",
    "Score",
    "Scores",
    "Tokenizer",
    "evaluate",
    "get_tokenizer",
]
