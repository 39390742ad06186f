"""BLEU under the conventions that papers use, side by side: they move it by more than most methods do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from caption.metrics.bleu import bleu
from caption.metrics.corpus import Corpus, References
from caption.metrics.score import Id, Scores
from caption.metrics.scores import signature
from caption.text.tokenizer import get_tokenizer


class Convention(NamedTuple):
    """One way to compute BLEU."""

    name: str
    tokenizer: str
    brevity_penalty: bool


CONVENTIONS = (
    Convention("coco-caption", "ptb", True),
    Convention("without brevity penalty", "ptb", False),
    Convention("punctuation kept", "ptb-punct", True),
    Convention("case kept", "ptb-cased", True),
    Convention("case and punctuation kept", "ptb-cased-punct", True),
    Convention("case and punctuation kept, without brevity penalty", "ptb-cased-punct", False),
)


def bleu_conventions(
    candidates: Mapping[Id, str],
    references: Mapping[Id, Sequence[str]],
    protocol: Mapping[str, object] | None = None,
) -> dict[str, Scores]:
    """BLEU-1 to BLEU-4 under each of `CONVENTIONS`, by its name.

    Args:
        candidates, references: as for `evaluate`, as they were written; text that was tokenized and lower-cased
            before has lost what the conventions differ in.
        protocol: see `evaluate`.

    Raises:
        UserError: images without candidate or without references.
    """
    corpora: dict[str, Corpus] = {}
    table: dict[str, Scores] = {}
    for name, tokenizer, penalty in CONVENTIONS:
        if tokenizer not in corpora:
            corpora[tokenizer] = Corpus(candidates, References(references, get_tokenizer(tokenizer)))
        corpus = corpora[tokenizer]
        table[name] = Scores(bleu(corpus, penalty), corpus.ids, signature(corpus, penalty, protocol))
    return table
