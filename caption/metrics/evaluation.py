"""Scores of captions: all metrics by name, the protocol of every number, and BLEU under other papers' conventions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from caption.core.errors import UserError, did_you_mean
from caption.core.version import package_version
from caption.metrics.bleu import bleu
from caption.metrics.cider import VARIANTS, cider
from caption.metrics.corpus import Corpus, References
from caption.metrics.meteor import meteor_15, meteor_nltk
from caption.metrics.own import Metric, identity_of, name_of, own_score
from caption.metrics.rouge import rouge_l
from caption.metrics.score import Id, MetricScore, Scores
from caption.metrics.spice import spice
from caption.text.tokenizer import get_tokenizer

DEFAULT_METRICS = ("BLEU", "CIDEr", "ROUGE-L")
_FUNCTIONS: dict[str, Callable[[Corpus], MetricScore]] = {
    "ROUGE-L": rouge_l,
    "METEOR-nltk": meteor_nltk,
    "METEOR-1.5": meteor_15,
    "SPICE": spice,
}
METRICS = ("BLEU", *VARIANTS, *_FUNCTIONS)
"""The names that `evaluate` takes; "BLEU" gives BLEU-1 to BLEU-4."""


def evaluate(
    candidates: Mapping[Id, str],
    references: Mapping[Id, Sequence[str]] | References,
    tokenizer: str | None = None,
    metrics: Sequence[str | Metric] = DEFAULT_METRICS,
    *,
    brevity_penalty: bool = True,
    protocol: Mapping[str, object] | None = None,
    photos: Mapping[Id, Path] | None = None,
) -> Scores:
    """Score one caption per image against its references.

    Args:
        candidates: the caption of each image; may be empty.
        references: the reference captions of the same images, any number each; or `References`, which have their own
            tokenizer and save work when many candidates are scored against the same references.
        tokenizer: its name, see `caption.text.tokenizer`; "none" for text that is tokenized already. By default that of
            `References`, otherwise "ptb".
        metrics: names among `METRICS`, and functions of one's own (`caption.metrics.Metric`).
        brevity_penalty: whether BLEU has one.
        protocol: how the captions were made, for the signature: split, beam size, length normalisation, how hard
            attention chose.
        photos: the file of each image, for metrics of one's own.

    Returns:
        The scores as fractions (CIDEr between 0 and 10; one's own as they are). A score that could not be computed is
        None, with a reason.

    Raises:
        UserError: an unknown tokenizer or metric, or two of one name; images without candidate or without references;
            a metric of one's own fails, see `caption.metrics.own.own_score`.
    """
    check_metrics(metrics)
    own = [metric for metric in metrics if not isinstance(metric, str)]
    if not isinstance(references, References):
        references = References(references, get_tokenizer(tokenizer or "ptb"))
    corpus = Corpus(candidates, references, None if tokenizer is None else get_tokenizer(tokenizer))
    scores: list[MetricScore] = []
    if "BLEU" in metrics:
        scores += bleu(corpus, brevity_penalty)
    variants = tuple(variant for variant in VARIANTS if variant in metrics)
    if variants:
        scores += cider(corpus, variants)
    scores += [score(corpus) for name, score in _FUNCTIONS.items() if name in metrics]
    if "CIDEr" in metrics:
        protocol = {"cider": "D", **(protocol or {})}  # CIDEr here means CIDEr-D, see caption.metrics.cider
    scores += [own_score(metric, corpus, photos) for metric in own]
    protocol = {**(protocol or {}), **{name_of(metric): identity_of(metric) for metric in own}}
    return Scores(scores, corpus.ids, signature(corpus, brevity_penalty, protocol))


def check_metrics(metrics: Sequence[str | Metric]) -> None:
    """Raise a UserError if a metric is unknown, or one of the user's own has the name of another one."""
    own = [name_of(metric) for metric in metrics if not isinstance(metric, str)]
    taken = {*METRICS, *(f"BLEU-{length}" for length in range(1, 5))}
    if doubled := [name for name in own if own.count(name) > 1 or name in taken]:
        raise UserError(f"there are two metrics {doubled[0]}: give yours another `name`.")
    for name in metrics:
        if isinstance(name, str) and name not in METRICS:
            raise UserError(
                f"there is no metric '{name}'{did_you_mean(name, METRICS)}: choose among {', '.join(METRICS)}."
            )


def signature(corpus: Corpus, brevity_penalty: bool, protocol: Mapping[str, object] | None = None) -> str:
    """The protocol in one line, such as "tok:ptb-1|case:lower|punct:removed|refs:5|bp:on|n:1000|v:0.1.0"."""
    tokenizer, reference_tokenizer = corpus.tokenizer, corpus.references.tokenizer
    entries: dict[str, object] = {"tok": f"{tokenizer.name}-{tokenizer.version}"}
    if reference_tokenizer.name != tokenizer.name:
        entries["reftok"] = f"{reference_tokenizer.name}-{reference_tokenizer.version}"
    entries |= {
        "case": tokenizer.case,
        "punct": tokenizer.punctuation,
        "refs": corpus.references.per_image,
        "bp": "on" if brevity_penalty else "off",
        "n": len(corpus.ids),
        **(protocol or {}),
        "v": package_version(),
    }
    return "|".join(f"{_cleaned(key)}:{_cleaned(value)}" for key, value in entries.items())


def _cleaned(part: object) -> str:
    """The text without the two characters that separate the parts of a signature."""
    return str(part).replace("|", "/").replace(":", "=")


CONVENTIONS = {
    "coco-caption": ("ptb", True),
    "without brevity penalty": ("ptb", False),
    "punctuation kept": ("ptb-punct", True),
    "case kept": ("ptb-cased", True),
    "case and punctuation kept": ("ptb-cased-punct", True),
    "case and punctuation kept, without brevity penalty": ("ptb-cased-punct", False),
}
"""The ways to compute BLEU: tokenizer, and whether there is a brevity penalty."""


def bleu_conventions(
    candidates: Mapping[Id, str],
    references: Mapping[Id, Sequence[str]],
    protocol: Mapping[str, object] | None = None,
) -> dict[str, Scores]:
    """BLEU-1 to BLEU-4 under each of `CONVENTIONS`, by its name. The choice changes BLEU more than most methods do.

    Args:
        candidates, references: as for `evaluate`, in their original spelling. The conventions differ in case and
            punctuation, which tokenized, lower-cased text has lost.
        protocol: see `evaluate`.

    Raises:
        UserError: images without candidate or without references.
    """
    corpora: dict[str, Corpus] = {}
    table: dict[str, Scores] = {}
    for name, (tokenizer, penalty) in CONVENTIONS.items():
        if tokenizer not in corpora:
            corpora[tokenizer] = Corpus(candidates, References(references, get_tokenizer(tokenizer)))
        corpus = corpora[tokenizer]
        table[name] = Scores(bleu(corpus, penalty), corpus.ids, signature(corpus, penalty, protocol))
    return table
