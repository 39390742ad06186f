"""`caption score`: BLEU, CIDEr, ROUGE-L of captions from any source."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from caption.cli.describe.inputs import input_photos
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import json_text, say, text_table
from caption.core.errors import CheckpointError, DataError, UserError, first_few, kind_and_reason, printable
from caption.core.runtime.trust import find_object
from caption.metrics.caption_files import STDIN, CaptionFile, match_images, photos_of, read_captions
from caption.metrics.corpus import MissingCandidates, References
from caption.metrics.evaluation import DEFAULT_METRICS, METRICS, bleu_conventions, check_metrics, evaluate
from caption.metrics.own import Metric
from caption.metrics.score import Id, MetricScore, Scores
from caption.metrics.significance import Comparison, Interval, compare, confidence_interval
from caption.text.scripts import unspaced
from caption.text.tokenizer import TOKENIZERS, get_tokenizer

HELP = """\
Score captions against references: BLEU, ROUGE-L and CIDEr as in coco-caption, without Java. Scores are printed to
stdout as fractions, with the protocol behind them. If there are several candidate files, each is compared with the
first.
"""

EPILOG = f"""\
Files may be COCO captions or results JSON, Karpathy's JSON, a JSON object of captions by image, JSON lines or CSV with
"image" and "caption", or Flickr8k's token file. The format is detected from the content.

metrics: {", ".join(METRICS)}, or all. METEOR-nltk needs nltk's WordNet data; METEOR-1.5 and SPICE need Java and
pycocoevalcap. A metric that cannot be computed is null, with the reason.

exit code: 0 all files scored; 1 some candidate files could not be scored, or none of the metrics could be computed for
them, the others are scored; 2 wrong usage
"""


@dataclass
class Result:
    """One candidate file, scored."""

    name: str
    scores: Scores
    intervals: dict[str, Interval | None] | None = None
    """Confidence interval of each score; None if not asked for."""
    conventions: dict[str, Scores] | None = None
    """BLEU under each convention; None if not asked for."""
    comparison: dict[str, Comparison | None] | None = None
    """Comparison of each metric with the first candidate file; None for that file itself."""


def main(options: argparse.Namespace) -> int:
    """Run `caption score`."""
    paths: list[str] = options.candidates
    if (options.references, *paths).count(STDIN) > 1:
        raise UserError("standard input ('-') can be one file only, but it is named twice.")
    metrics: list[str | Metric] = [
        *(METRICS if "all" in options.metrics else options.metrics),
        *map(_own_metric, options.metric),
    ]
    check_metrics(metrics)
    protocol = _protocol(options)
    file = read_captions(options.references, options.split)
    photos = None
    if options.photos:
        photos = photos_of(file, input_photos([options.photos], recursive=True).photos)
    references = References(file.captions, get_tokenizer(options.reference_tokenizer or options.tokenizer))
    for note in file.notes:
        say("score", note)
    if bare := [
        image for image, group in zip(references.ids, references.words, strict=True) if not all(group)
    ]:
        say(
            "score",
            f"{len(bare)} images have a reference without words, which lowers scores: {first_few(bare)}",
        )
    results: list[Result] = []
    for path in paths:
        try:
            results.append(_score(path, file, references, metrics, protocol, photos, options))
        except DataError as error:  # its message names the file
            say("score", error)
        except UserError as error:
            hint = " Or score the others, with --partial." if isinstance(error, MissingCandidates) else ""
            say("score", f"'{path}': {error}{hint}")
    compare_with_first(results)
    if results and options.format == "json":
        print(as_json(results, len(paths) > 1))
    elif results:
        print(as_text(results, _short_names([result.name for result in results])))
    # Each file must have at least one score.
    scored = [result for result in results if any(value is not None for value in result.scores.values())]
    return DONE if len(scored) == len(paths) else SOME_FAILED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption score`."""
    parser.epilog = EPILOG
    add, tokenizers = parser.add_argument, tuple(TOKENIZERS)
    add("--references", required=True, metavar="R", help="reference captions; - is standard input")
    help_ = "one caption per image; - is standard input"
    add("--candidates", required=True, nargs="+", metavar="C", help=help_)
    add("--tokenizer", choices=tokenizers, default="ptb", help="none for tokenized text; default ptb")
    help_ = "tokenizer of the references; default: that of --tokenizer"
    add("--reference-tokenizer", choices=tokenizers, help=help_)
    help_ = "see below; default BLEU CIDEr ROUGE-L"
    add("--metrics", nargs="+", default=list(DEFAULT_METRICS), metavar="M", help=help_)
    help_ = "your own f(candidates, references, photos), which gives a number per image; may be repeated"
    add("--metric", action="append", default=[], metavar="PACKAGE.MODULE:F", help=help_)
    add("--photos", metavar="DIR", help="the images' files, for --metric; found by their names")
    add("--format", choices=("text", "json"), default="text", help="format of stdout; default text")
    add("--split", metavar="S", help="score this split, if the references have splits")
    add("--partial", action="store_true", help="score the images that have a candidate, leave out the others")
    add("--confidence", action="store_true", help="95 %% intervals, by bootstrap over images")
    add("--conventions", action="store_true", help="BLEU by the conventions of other papers, side by side")
    help_ = "entries of the signature, such as beam=5 epoch=8"
    add("--protocol", nargs="+", default=[], metavar="KEY=VALUE", help=help_)


def _own_metric(path: str) -> Metric:
    """The function of a path such as package.module:function, from the working directory or an installed package."""
    module, _, name = path.partition(":")
    try:
        metric: Metric = find_object(f"{module}.{name}", [module.partition(".")[0]])
    except CheckpointError as error:
        reason = kind_and_reason(error.__cause__) if error.__cause__ else "write package.module:function"
        raise UserError(f"--metric {path} cannot be imported: {reason}.") from error
    if not callable(metric):
        raise UserError(f"--metric {path} is of type {type(metric).__name__}, and not a function.")
    return metric


def _protocol(options: argparse.Namespace) -> dict[str, str]:
    pairs = [entry.partition("=") for entry in options.protocol]
    if not all(equals for _, equals, _ in pairs):
        raise UserError("--protocol takes KEY=VALUE pairs, such as beam=5.")
    protocol = {key: value for key, _, value in pairs}
    return ({"split": options.split} if options.split else {}) | protocol


def _score(
    path: str,
    file: CaptionFile,
    references: References,
    metrics: Sequence[str | Metric],
    protocol: dict[str, str],
    photos: dict[Id, Path] | None,
    options: argparse.Namespace,
) -> Result:
    answers = read_captions(path)
    for note in answers.notes:
        say("score", note)
    candidates = match_images(answers, file)
    if options.partial:
        references = references.only(candidates)
    tokenize = get_tokenizer(options.tokenizer)
    if reason := unspaced(Counter(word for text in candidates.values() for word in tokenize(text))):
        raise UserError(f"the candidates give no words: {reason}")
    scores = evaluate(candidates, references, options.tokenizer, metrics, protocol=protocol, photos=photos)
    result = Result(path, scores)
    if options.confidence:
        result.intervals = {name: confidence_interval(scores.score(name)) for name in scores}
    if options.conventions:
        texts = dict(zip(references.ids, references.texts, strict=True))
        try:
            result.conventions = bleu_conventions(candidates, texts, protocol)
        except UserError as error:
            say("score", f"--conventions is left out: in the tokenizer ptb, {error}")
    return result


def compare_with_first(results: list[Result]) -> None:
    """Compare each file with the first, if both cover the same images."""
    for result in results[1:]:
        if result.scores.ids == results[0].scores.ids:
            first, second = results[0].scores, result.scores
            result.comparison = {name: _compare(first.score(name), second.score(name)) for name in first}
        else:
            say(
                "score",
                f"{result.name} has different images than {results[0].name}, so they are not compared",
            )


def _compare(first: MetricScore, second: MetricScore) -> Comparison | None:
    """The comparison of a metric; None, too, for two different scores that are both printed as 0.

    BLEU without a match has a tiny score, by its smoothing; the difference of two such scores has a small p-value.
    """
    tiny = all(score.value is not None and abs(score.value) < 5e-5 for score in (first, second))
    return None if tiny and first.value != second.value else compare(first, second)


# -- output ----------------------------------------------------------------------------------------------------


def as_json(results: list[Result], several: bool) -> str:
    """One object for one candidate file; for several, `{"candidates": [...]}` with one object each."""
    entries = [{"file": result.name, **as_entry(result)} for result in results]
    return json_text({"candidates": entries} if several else as_entry(results[0]), indent=1)


def as_entry(result: Result) -> dict[str, Any]:
    """A scored file in plain types for JSON."""
    entry = result.scores.to_dict()
    if result.intervals is not None:
        entry["intervals"] = result.intervals
    if result.conventions is not None:
        entry["conventions"] = {name: scores.to_dict() for name, scores in result.conventions.items()}
    if result.comparison is not None:
        entry["comparison"] = {name: test and test._asdict() for name, test in result.comparison.items()}
    return entry


def as_text(results: list[Result], names: list[str]) -> str:
    """Tables of scores, conventions and comparisons, then the signatures, then the reasons for missing scores.

    Args:
        names: of the results, as they are shown.
    """
    names = list(map(printable, names))
    heads = names if len(results) > 1 else ["score"]
    scores = [[name, *(_cell(result, name) for result in results)] for name in results[0].scores]
    parts = [text_table([["", *heads], *scores])]
    for name, result in zip(names, results, strict=True):
        if result.conventions is not None:
            metrics = list(next(iter(result.conventions.values())))
            rows = [
                [key, *(_number(row[metric]) for metric in metrics)]
                for key, row in result.conventions.items()
            ]
            parts.append(f"\nconventions, {name}\n{text_table([['', *metrics], *rows])}")
    for name, result in zip(names, results, strict=True):
        if tests := {metric: test for metric, test in (result.comparison or {}).items() if test is not None}:
            rows = [
                [
                    metric,
                    f"{test.difference:+.4f}",
                    f"[{test.low:+.4f}, {test.high:+.4f}]",
                    f"{test.p_value:.3f}",
                ]
                for metric, test in tests.items()
            ]
            table = text_table([["", "difference", "95 % interval", "p"], *rows])
            parts.append(f"\n{name} less {names[0]}\n{table}")
    signatures = dict.fromkeys(result.scores.signature for result in results)
    reasons = {f"{name}: {reason}" for result in results for name, reason in result.scores.reasons.items()}
    return "\n".join([*parts, "", *map(printable, [*signatures, *sorted(reasons)])])


def _short_names(paths: list[str]) -> list[str]:
    """The paths without their common folders and suffix, as far as the names stay different."""
    for names in ([PurePath(path).stem for path in paths], [PurePath(path).name for path in paths]):
        if len(set(names)) == len(names):
            return names
    return paths


def _cell(result: Result, name: str) -> str:
    interval = (result.intervals or {}).get(name)
    bounds = f" [{interval.low:.4f}, {interval.high:.4f}]" if interval else ""
    return _number(result.scores[name]) + bounds


def _number(value: float | None) -> str:
    return "not computed" if value is None else f"{value:.4f}"
