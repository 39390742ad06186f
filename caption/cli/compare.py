"""`caption compare`: training runs side by side: scores and learning curves."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import json_text, say, text_table
from caption.core.errors import CheckpointError, UserError, printable, reported_as
from caption.core.runtime.atomic_files import replacing_own
from caption.core.runtime.outputs import FIGURES, check_outputs, output_file

if TYPE_CHECKING:  # torch and Matplotlib take seconds to import, and --help must not wait for them
    from caption.cli.score import Result
    from caption.metrics.caption_files import CaptionFile
    from caption.training.run_results import RunResults

HELP = """\
Compare training runs. RUN is the folder of a run of `caption fit`. Printed to stdout: the best epoch of each and its
scores on the validation split; for runs that `caption test` has tested, the scores on the test split with 95 %
intervals, and how each differs from the first run on the same images. `caption describe --compare` shows their maps.
NLL and loss are compared between models of one vocabulary only: with fewer words, each is easier to predict.

exit code: 0 all runs compared; 1 some runs are not tested, or with other references or another tokenizer than the
first: they are named on stderr, and the others are compared; 2 wrong usage
"""

SHOWN = {"val/CIDEr": "CIDEr", "val/BLEU-4": "BLEU-4", "val/NLL": "NLL per word"}
"""The numbers of the best epoch that are printed, with their printed names."""
OF_WORDS = frozenset(("val/NLL", "train/NLL", "train/loss"))
"""Numbers that depend on the vocabulary."""


def main(options: argparse.Namespace) -> int:
    """Run `caption compare`."""
    runs, curves = _plan(options)
    left_out: frozenset[str] = frozenset()
    if not _one_vocabulary(runs):
        left_out = OF_WORDS
        say(
            "compare",
            "NLL and loss are left out: the vocabularies differ, or a run has no checkpoint that tells",
        )
    if curves:
        _draw_curves(runs, left_out, curves)
    results, complete = _scores(runs, options.references)
    shown = [key for key in SHOWN if key not in left_out]
    print(_json(runs, shown, results) if options.format == "json" else _text(runs, shown, results))
    return DONE if complete else SOME_FAILED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption compare`."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of runs; differences are to the first")
    help_ = "reference captions of the test split; default: those that `caption test` has kept in the first tested run"
    add("--references", metavar="R", help=help_)
    add("--format", choices=("text", "json"), default="text", help="format of stdout; default text")
    add("--curves", metavar="FILE", help="a figure of the learning curves, as .png, .pdf, .svg ...")


def _plan(options: argparse.Namespace) -> tuple[dict[str, RunResults], Path | None]:
    """The runs by their short names, and the figure of their curves, checked before any work."""
    # This imports torch, which takes seconds that --help should not take.
    from caption.training.run_results import read_run

    runs = [read_run(name) for name in options.runs]
    names = [Path(run.name).absolute().name for run in runs]  # "." has one, too
    if len(set(names)) < len(names):
        names = [str(Path(run.name)) for run in runs]
    if len(set(names)) < len(names):
        raise UserError("a run is named twice: give different ones")
    curves = output_file(options.curves, FIGURES, "--curves") if options.curves else None
    read = [*(str(run.model) for run in runs), *filter(None, [options.references])]
    check_outputs({"--curves": [curves]} if curves else {}, read)
    return dict(zip(names, runs, strict=True)), curves


def _one_vocabulary(runs: Mapping[str, RunResults]) -> bool:
    """Whether the models of all runs are known to have the same vocabulary, as a single one has."""
    from caption.models import checkpoint

    if len(runs) < 2:
        return True
    try:
        first, *others = (checkpoint.read(run.model)["captioner"].get("vocabulary") for run in runs.values())
    except CheckpointError:
        return False
    return all(other == first for other in others)


def _scores(runs: dict[str, RunResults], references: str | None) -> tuple[list[Result], bool]:
    """The scores of the tested runs, and whether all runs could be compared; the others are reported on stderr."""
    from caption.cli.score import Result, compare_with_first
    from caption.metrics.caption_files import match_images, read_captions
    from caption.metrics.corpus import References
    from caption.metrics.evaluation import evaluate
    from caption.metrics.significance import confidence_interval
    from caption.text.tokenizer import get_tokenizer

    for name, run in runs.items():
        if run.captions is None:
            remedy = f"caption test -c CONFIG --ckpt_path {run.model} adds its scores"
            say(
                "compare",
                f"{name} is not tested: {remedy if run.model.is_file() else f'it has no {run.model.name}'}",
            )
    tested = {name: run for name, run in runs.items() if run.captions is not None}
    path = references or next((run.references for run in tested.values() if run.references), None)
    if not tested or path is None:
        if tested:
            say("compare", "the references of the tests are not in the runs: name them with --references")
        return [], False
    file = read_captions(path)
    if references is None:
        tested = _with_references(tested, path, file)
    references_by_tokenizer = {
        name: References(file.captions, get_tokenizer(name))
        for name in {run.tokenizer for run in tested.values()}
    }
    results = []
    for name, run in tested.items():
        assert run.captions is not None
        try:
            captions = match_images(run.captions, file)
            tokenized = references_by_tokenizer[run.tokenizer]
            scores = evaluate(captions, tokenized, run.tokenizer, protocol=run.protocol)
        except UserError as error:
            say("compare", f"{name}: {error}")
        else:
            intervals = {metric: confidence_interval(scores.score(metric)) for metric in scores}
            results.append(Result(name, scores, intervals))
    alike = [result for result in results if runs[result.name].tokenizer == runs[results[0].name].tokenizer]
    for result in results:
        if result not in alike:
            say(
                "compare",
                f"{result.name} was tested with another tokenizer than {results[0].name}, so their scores are not "
                "compared: caption score --tokenizer T scores the files of both alike",
            )
    compare_with_first(alike)
    return results, len(alike) == len(runs)


def _with_references(tested: Mapping[str, RunResults], path: str, file: CaptionFile) -> dict[str, RunResults]:
    """The runs that were tested with the references in a file; the others are reported on stderr."""
    from caption.metrics.caption_files import read_captions

    first = next(name for name, run in tested.items() if run.references == path)
    kept = {}
    for name, run in tested.items():
        if run.references is None or read_captions(run.references).captions == file.captions:
            kept[name] = run
        else:
            say(
                "compare",
                f"{name} was tested with other references than {first}, so its scores are left out: test both on the "
                "same data, or name the references of both with --references",
            )
    return kept


def _best(run: RunResults, shown: Sequence[str]) -> dict[str, float]:
    """The numbers of the best epoch on the validation split, by the names of their curves."""
    epoch = run.best_epoch
    return (
        {}
        if epoch is None
        else {key: run.curves[key][epoch] for key in shown if epoch in run.curves.get(key, {})}
    )


def _text(runs: dict[str, RunResults], shown: Sequence[str], results: list[Result]) -> str:
    from caption.cli.score import as_text

    rows = [["", "epochs", "best", *(SHOWN[key] for key in shown)]]
    for name, run in runs.items():
        numbers = _best(run, shown)
        cells = [f"{numbers[key]:.4f}" if key in numbers else "–" for key in shown]
        best = "–" if run.best_epoch is None else f"{run.best_epoch + 1:g}"
        rows.append([printable(name), "–" if run.epochs is None else str(run.epochs), best, *cells])
    parts = [f"best epoch on the validation split\n{text_table(rows)}"]
    if results:
        parts.append(f"test split\n{as_text(results, [result.name for result in results])}")
    return "\n\n".join(parts)


def _json(runs: dict[str, RunResults], shown: Sequence[str], results: list[Result]) -> str:
    from caption.cli.score import as_entry

    scores = {result.name: as_entry(result) for result in results}
    entries: list[dict[str, Any]] = [
        {
            "run": run.name,
            "epochs": run.epochs,
            "best_epoch": run.best_epoch,
            "validation": {SHOWN[key]: value for key, value in _best(run, shown).items()},
            "test": scores.get(name),
            "curves": run.curves,
        }
        for name, run in runs.items()
    ]
    return json_text({"runs": entries}, indent=1)


def _draw_curves(runs: Mapping[str, RunResults], left_out: Collection[str], path: Path) -> None:
    from caption.training.learning_curves import plot_learning_curves
    from caption.visualize import save_figure

    with reported_as(UserError, "--curves", ValueError):
        fig = plot_learning_curves(
            {
                name: {number: curve for number, curve in run.curves.items() if number not in left_out}
                for name, run in runs.items()
            }
        )
    save_figure(fig, path, opener=replacing_own)
