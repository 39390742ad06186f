"""`caption score`: how good captions are, whoever made them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from caption.cli.score_report import Result, as_json, as_text
from caption.errors import DataError, UserError
from caption.metrics.corpus import MissingCandidates, References
from caption.metrics.evaluation import DEFAULT_METRICS, METRICS, bleu_conventions, check_metrics, evaluate
from caption.metrics.files import STDIN, CaptionFile, match_images, read_captions
from caption.metrics.significance import LEVEL, compare_all, confidence_interval
from caption.text.tokenizer import TOKENIZERS, get_tokenizer

DESCRIPTION = """\
Score captions against references: BLEU, ROUGE-L and CIDEr as coco-caption computes them, without Java. Scores go to
stdout as fractions, with the protocol that made them. With several candidate files, each is compared with the first.
"""
EPILOG = f"""\
Files may be COCO captions or results JSON, Karpathy's JSON, a JSON object of captions by image, JSON lines or CSV with
"image" and "caption", or Flickr8k's token file; what a file is shows in its content.

metrics: {", ".join(METRICS)}, or all. METEOR-nltk needs nltk's WordNet data; METEOR-1.5 and SPICE need Java and
pycocoevalcap. A metric that cannot be computed is null, with the reason.

exit code: 0 all scored; 1 some candidate files could not be, the others are; 2 wrong usage
"""


def main(args: list[str]) -> int:
    """Run `caption score`.

    Raises:
        UserError: wrong usage, or references that cannot be read.
    """
    options = _parser().parse_args(args)
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
        except DataError as error:  # names the file itself
            print(f"caption score: {error}", file=sys.stderr)
        except UserError as error:
            hint = " Or score the others, with --partial." if isinstance(error, MissingCandidates) else ""
            print(f"caption score: '{path}': {error}{hint}", file=sys.stderr)
    if len(references.ids) == 1 and any("CIDEr" in metric for metric in metrics):
        print("caption score: CIDEr of a single image is always 0, see docs/scores.md", file=sys.stderr)
    _compare(results)
    if results:
        print(as_json(results, len(paths) > 1) if options.format == "json" else as_text(results))
    return 0 if len(results) == len(paths) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "caption score",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--references", required=True, metavar="R", help="what people wrote; - is standard input")
    add(
        "--candidates",
        required=True,
        nargs="+",
        metavar="C",
        help="one caption per image; - is standard input",
    )
    add("--tokenizer", choices=tuple(TOKENIZERS), default="ptb", help="none for tokenized text; default ptb")
    add("--reference-tokenizer", choices=tuple(TOKENIZERS), help="where the references need another one")
    add(
        "--metrics",
        nargs="+",
        default=list(DEFAULT_METRICS),
        metavar="M",
        help="see below; default BLEU CIDEr ROUGE-L",
    )
    add("--format", choices=("text", "json"), default="text", help="of stdout; default text")
    add("--split", metavar="S", help="score this split of references that have splits")
    add("--partial", action="store_true", help="score the images that have a candidate, leave out the others")
    add("--no-brevity-penalty", action="store_true", help="BLEU without it; short captions then score higher")
    add("--confidence", action="store_true", help="95 %% intervals, by bootstrap over images")
    add("--conventions", action="store_true", help="BLEU as other papers compute it, side by side")
    add(
        "--protocol",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="noted in the signature: beam=5 epoch=8",
    )
    return parser


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
    metrics: Sequence[str],
    protocol: dict[str, str],
    options: argparse.Namespace,
) -> Result:
    """One candidate file, scored in all ways that were asked for."""
    candidates = match_images(read_captions(path), file)
    if options.partial:
        references = references.only(candidates)
    scores = evaluate(
        candidates,
        references,
        options.tokenizer,
        metrics,
        brevity_penalty=not options.no_brevity_penalty,
        protocol=protocol,
    )
    result = Result(path, scores)
    if options.confidence:
        result.intervals = {name: confidence_interval(scores.score(name), LEVEL) for name in scores}
    if options.conventions:
        texts = dict(zip(references.ids, references.texts, strict=True))
        result.conventions = bleu_conventions(candidates, texts, protocol)
    return result


def _compare(results: list[Result]) -> None:
    """Each system with the first, on the images that both were scored on: all, but for --partial."""
    for result in results[1:]:
        if result.scores.ids == results[0].scores.ids:
            result.comparison = compare_all(results[0].scores, result.scores)
        else:
            print(
                f"caption score: {result.name} covers other images than {results[0].name}, so they are not compared",
                file=sys.stderr,
            )
