"""`caption score`: scores of captions from any source."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from caption.cli.configuration.arguments import verb_parser
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.errors import DataError, UserError, printable
from caption.metrics.corpus import MissingCandidates, References
from caption.metrics.evaluation import DEFAULT_METRICS, METRICS, bleu_conventions, check_metrics, evaluate
from caption.metrics.files import STDIN, CaptionFile, match_images, read_captions
from caption.metrics.score import Scores
from caption.metrics.significance import LEVEL, Comparison, Interval, compare_all, confidence_interval
from caption.text.tokenizer import TOKENIZERS, get_tokenizer

DESCRIPTION = """\
Score captions against references: BLEU, ROUGE-L and CIDEr as in coco-caption, without Java. Scores are printed to
stdout as fractions, with the protocol behind them. If there are several candidate files, each is compared with the
first.
"""
EPILOG = f"""\
Files may be COCO captions or results JSON, Karpathy's JSON, a JSON object of captions by image, JSON lines or CSV with
"image" and "caption", or Flickr8k's token file. The format is recognised by the content.

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
    """Comparison with the first candidate file; None for that file itself."""


def main(args: list[str]) -> int:
    """Run `caption score`; EPILOG tells the exit codes."""
    options = make_parser().parse_args(args)
    paths: list[str] = options.candidates
    if (options.references, *paths).count(STDIN) > 1:
        raise UserError("standard input ('-') can be one file only, but it is named twice.")
    metrics = METRICS if "all" in options.metrics else tuple(options.metrics)
    check_metrics(metrics)
    protocol = _protocol(options)
    file = read_captions(options.references, options.split)
    references = References(file.captions, get_tokenizer(options.reference_tokenizer or options.tokenizer))
    results: list[Result] = []
    for path in paths:
        try:
            results.append(_score(path, file, references, metrics, protocol, options))
        except DataError as error:  # its message names the file
            _say(str(error))
        except UserError as error:
            hint = " Or score the others, with --partial." if isinstance(error, MissingCandidates) else ""
            _say(f"'{path}': {error}{hint}")
    if len(references.ids) == 1 and any("CIDEr" in metric for metric in metrics):
        _say("CIDEr of a single image is always 0, see docs/scores.md")
    _compare(results)
    if results:
        print(_json(results, len(paths) > 1) if options.format == "json" else _text(results))
    # Each file must have at least one score.
    scored = [result for result in results if len(result.scores.reasons) < len(result.scores)]
    return DONE if len(scored) == len(paths) else SOME_FAILED


def make_parser() -> argparse.ArgumentParser:
    """The options of `caption score`."""
    parser = verb_parser("score", DESCRIPTION, EPILOG)
    add, tokenizers = parser.add_argument, tuple(TOKENIZERS)
    add("--references", required=True, metavar="R", help="reference captions; - is standard input")
    help_ = "one caption per image; - is standard input"
    add("--candidates", required=True, nargs="+", metavar="C", help=help_)
    add("--tokenizer", choices=tokenizers, default="ptb", help="none for tokenized text; default ptb")
    help_ = "tokenizer of the references; default: that of --tokenizer"
    add("--reference-tokenizer", choices=tokenizers, help=help_)
    help_ = "see below; default BLEU CIDEr ROUGE-L"
    add("--metrics", nargs="+", default=list(DEFAULT_METRICS), metavar="M", help=help_)
    add("--format", choices=("text", "json"), default="text", help="format of stdout; default text")
    add("--split", metavar="S", help="score this split, if the references have splits")
    add("--partial", action="store_true", help="score the images that have a candidate, leave out the others")
    add("--no-brevity-penalty", action="store_true", help="BLEU without it; short captions then score higher")
    add("--confidence", action="store_true", help="95 %% intervals, by bootstrap over images")
    add("--conventions", action="store_true", help="BLEU by the conventions of other papers, side by side")
    help_ = "entries of the signature, such as beam=5 epoch=8"
    add("--protocol", nargs="+", default=[], metavar="KEY=VALUE", help=help_)
    return parser


def _protocol(options: argparse.Namespace) -> dict[str, str]:
    pairs = [entry.partition("=") for entry in options.protocol]
    if not all(equals for _, equals, _ in pairs):
        raise UserError("--protocol takes KEY=VALUE pairs, such as beam=5.")
    protocol = {key: value for key, _, value in pairs}
    return ({"split": options.split} if options.split else {}) | protocol


def _say(message: str) -> None:
    print(f"caption score: {printable(message)}", file=sys.stderr)


def _score(
    path: str,
    file: CaptionFile,
    references: References,
    metrics: Sequence[str],
    protocol: dict[str, str],
    options: argparse.Namespace,
) -> Result:
    """One candidate file, scored in all ways that were asked for."""
    candidates = match_images(read_captions(path), file)
    if options.partial:
        references = references.only(candidates)
    bleu = {"brevity_penalty": not options.no_brevity_penalty}
    scores = evaluate(candidates, references, options.tokenizer, metrics, **bleu, protocol=protocol)
    result = Result(path, scores)
    if options.confidence:
        result.intervals = {name: confidence_interval(scores.score(name), LEVEL) for name in scores}
    if options.conventions:
        texts = dict(zip(references.ids, references.texts, strict=True))
        result.conventions = bleu_conventions(candidates, texts, protocol)
    return result


def _compare(results: list[Result]) -> None:
    """Compare each file with the first. With --partial, two files may cover different images."""
    for result in results[1:]:
        if result.scores.ids == results[0].scores.ids:
            result.comparison = compare_all(results[0].scores, result.scores)
        else:
            _say(f"{result.name} covers other images than {results[0].name}, so they are not compared")


# -- what is printed -------------------------------------------------------------------------------------------


def _json(results: list[Result], several: bool) -> str:
    """One object for one candidate file; for several, `{"candidates": [...]}` with one object each."""
    if several:
        entries = [{"file": result.name, **_entry(result)} for result in results]
        return json.dumps({"candidates": entries}, indent=1)
    return json.dumps(_entry(results[0]), indent=1)


def _entry(result: Result) -> dict[str, Any]:
    entry = result.scores.to_dict()
    if result.intervals is not None:
        entry["intervals"] = {name: each and [each.low, each.high] for name, each in result.intervals.items()}
    if result.conventions is not None:
        entry["conventions"] = {name: scores.to_dict() for name, scores in result.conventions.items()}
    if result.comparison is not None:
        entry["comparison"] = {name: each and each._asdict() for name, each in result.comparison.items()}
    return entry


def _text(results: list[Result]) -> str:
    """Tables of scores, conventions and comparisons, then the signatures, then the reasons for missing scores."""
    for result, name in zip(results, _short([result.name for result in results]), strict=True):
        result.name = name
    heads = [result.name for result in results] if len(results) > 1 else ["score"]
    rows = [[name, *(_cell(result, name) for result in results)] for name in results[0].scores]
    tables = [_table("", ["", *heads], rows)]
    for result in results:
        if result.conventions is not None:
            names = list(next(iter(result.conventions.values())))
            rows = [
                [convention, *(_number(scores[name]) for name in names)]
                for convention, scores in result.conventions.items()
            ]
            tables.append(_table(f"conventions, {result.name}", ["", *names], rows))
    for result in results:
        if result.comparison is not None:
            rows = [
                [
                    name,
                    f"{test.difference:+.4f}",
                    f"[{test.low:+.4f}, {test.high:+.4f}]",
                    f"{test.p_value:.3f}",
                ]
                for name, test in result.comparison.items()
                if test is not None
            ]
            title = f"{result.name} less {results[0].name}"
            tables.append(_table(title, ["", "difference", "95 % interval", "p"], rows))
    signatures = dict.fromkeys(result.scores.signature for result in results)
    reasons = {f"{name}: {reason}" for result in results for name, reason in result.scores.reasons.items()}
    return "\n".join([*tables, *signatures, *sorted(reasons)])


def _short(paths: list[str]) -> list[str]:
    """The paths without their common folders and suffix, as far as the names stay different."""
    names = [PurePath(path).name for path in paths]
    if len(set(names)) < len(names):
        return paths
    stems = [PurePath(name).stem for name in names]
    return stems if len(set(stems)) == len(stems) else names


def _cell(result: Result, name: str) -> str:
    interval = (result.intervals or {}).get(name)
    bounds = f" [{interval.low:.4f}, {interval.high:.4f}]" if interval else ""
    return _number(result.scores[name]) + bounds


def _number(value: float | None) -> str:
    return "not computed" if value is None else f"{value:.4f}"


def _table(title: str, heads: list[str], rows: list[list[str]]) -> str:
    """A table with lines on a terminal; in a file, columns separated by spaces, of any width."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    on_terminal = sys.stdout.isatty()
    table = Table(box=box.SIMPLE if on_terminal else None, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(escape(head), justify="right" if place and on_terminal else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console(width=None if on_terminal else 10_000)
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join([*([title] if title else []), *lines, *([] if on_terminal else [""])])
