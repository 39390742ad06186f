"""Compare training runs. RUN is the folder of a run of `caption fit`. Printed to stdout: the best epoch of each and its
scores on the validation split; for runs that `caption test` has tested, the scores on the test split with 95 %
intervals, and how each differs from the first run on the same images. Figures on request.

exit code: 0 all runs compared; 1 some runs are not tested, or have no model for the maps, or some photos could not be
read: they are named on stderr, and the others are compared; 2 wrong usage
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.configuration.arguments import add_trust
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import json_text, say, text_table
from caption.errors import ImageError, UserError, printable, reported_as
from caption.runtime.files import replacing_own
from caption.runtime.outputs import FIGURES, check_outputs, output_file, output_paths
from caption.runtime.progress import progress_bar

if TYPE_CHECKING:  # torch and Matplotlib take seconds to import, and --help must not wait for them
    from caption.cli.describe.photos import Inputs
    from caption.cli.score import Result
    from caption.result import Caption
    from caption.training.run_results import RunResults

SHOWN = {"val/CIDEr": "CIDEr", "val/BLEU-4": "BLEU-4", "val/NLL": "NLL per word"}
"""Numbers of the best epoch that are printed, with their names there."""


@dataclass(frozen=True)
class Plan:
    """Runs, the photos of their maps, and the outputs."""

    runs: dict[str, RunResults]
    """By their short names."""
    references: str | None
    inputs: Inputs
    curves: Path | None
    maps: list[Path]
    page: Path | None
    trust: Sequence[str]


def main(options: argparse.Namespace) -> int:
    """Run `caption compare`."""
    plan = _plan(options)
    if plan.curves:
        _draw_curves(plan.runs, plan.curves)
    results, complete = _scores(plan)
    print(_json(plan.runs, results) if options.format == "json" else _text(plan.runs, results))
    if plan.inputs.photos:
        complete &= _draw_maps(plan)
    return DONE if complete else SOME_FAILED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption compare`."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of runs; differences are to the first")
    help_ = "reference captions of the test split; default: those that `caption test` has kept in the first tested run"
    add("--references", metavar="R", help=help_)
    add("--format", choices=("text", "json"), default="text", help="format of stdout; default text")
    add("--curves", metavar="FILE", help="a figure of the learning curves, as .png, .pdf, .svg ...")
    add("--photos", nargs="+", default=[], metavar="IMAGE", help="photos or folders for --maps and --html")
    help_ = (
        "a figure for each photo: the captions of the runs' best models with their maps, one above the other"
    )
    add("--maps", metavar="FILE|DIR", help=help_)
    add("--html", metavar="FILE", help="one interactive page with all photos, the runs side by side")
    add_trust(parser)


def _plan(options: argparse.Namespace) -> Plan:
    """Read the runs, and check the outputs before any work."""
    if bool(options.photos) != bool(options.maps or options.html):
        raise UserError(
            "maps are drawn of photos: name them with --photos, and the output with --maps or --html"
        )
    # These import torch, which takes seconds that --help should not take.
    from caption.cli.describe.photos import input_photos
    from caption.cli.score import short_names
    from caption.training.run_results import read_run

    inputs = input_photos(options.photos)
    runs = [read_run(name) for name in options.runs]
    names = short_names([run.name.rstrip("/\\") for run in runs])
    if len(set(names)) < len(names):
        raise UserError("a run is named twice: give different ones")
    curves = output_file(options.curves, FIGURES, "--curves") if options.curves else None
    maps = output_paths(options.maps, inputs.photos, FIGURES, "--maps") if options.maps else []
    page = output_file(options.html, (".html", ".htm"), "--html") if options.html else None
    outputs: dict[str, Sequence[Path | None]] = {"--curves": [curves], "--maps": maps, "--html": [page]}
    read = [*inputs.photos, *(str(run.best) for run in runs), *filter(None, [options.references])]
    check_outputs({option: [path for path in paths if path] for option, paths in outputs.items()}, read)
    by_name = dict(zip(names, runs, strict=True))
    return Plan(by_name, options.references, inputs, curves, maps, page, options.trust)


# -- scores ----------------------------------------------------------------------------------------------------


def _scores(plan: Plan) -> tuple[list[Result], bool]:
    """The scores of the tested runs, and whether all runs could be scored; what could not is said on stderr."""
    from caption.cli.score import Result, compare_with_first
    from caption.metrics.caption_files import match_images, read_captions
    from caption.metrics.corpus import References
    from caption.metrics.evaluation import evaluate
    from caption.metrics.significance import confidence_interval
    from caption.text.tokenizer import get_tokenizer

    for name, run in plan.runs.items():
        if run.captions is None:
            say(
                "compare",
                f"{name} is not tested: caption test -c CONFIG --ckpt_path {run.best} adds its scores",
            )
    tested = {name: run for name, run in plan.runs.items() if run.captions is not None}
    kept = plan.references or next((run.references for run in tested.values() if run.references), None)
    if not tested or kept is None:
        if tested:
            say("compare", "the references of the tests are not in the runs: name them with --references")
        return [], False
    file = read_captions(kept)
    known = {
        name: References(file.captions, get_tokenizer(name))
        for name in {run.tokenizer for run in tested.values()}
    }
    results = []
    for name, run in tested.items():
        assert run.captions is not None
        try:
            captions = match_images(run.captions, file)
            scores = evaluate(captions, known[run.tokenizer], run.tokenizer, protocol=run.protocol)
        except UserError as error:
            say("compare", f"{name}: {error}")
        else:
            intervals = {metric: confidence_interval(scores.score(metric)) for metric in scores}
            results.append(Result(name, scores, intervals))
    compare_with_first(results)
    return results, len(results) == len(plan.runs)


def _best(run: RunResults) -> dict[str, float]:
    """The numbers of the best epoch on the validation split, by the names of their curves."""
    epoch = run.best_epoch
    return (
        {}
        if epoch is None
        else {key: run.curves[key][epoch] for key in SHOWN if epoch in run.curves.get(key, {})}
    )


def _text(runs: dict[str, RunResults], results: list[Result]) -> str:
    from caption.cli.score import as_text

    rows = [["", "epochs", "best", *SHOWN.values()]]
    for name, run in runs.items():
        numbers = _best(run)
        cells = [f"{numbers[key]:.4f}" if key in numbers else "–" for key in SHOWN]
        best = "–" if run.best_epoch is None else str(run.best_epoch)
        rows.append([printable(name), str(run.epochs), best, *cells])
    parts = [f"best epoch, counted from 0, on the validation split\n{text_table(rows)}"]
    if results:
        parts.append(f"test split\n{as_text(results)}")
    return "\n\n".join(parts)


def _json(runs: dict[str, RunResults], results: list[Result]) -> str:
    from caption.cli.score import as_entry

    scores = {result.name: as_entry(result) for result in results}
    entries: list[dict[str, Any]] = [
        {
            "run": run.name,
            "epochs": run.epochs,
            "best_epoch": run.best_epoch,
            "validation": {SHOWN[key]: value for key, value in _best(run).items()},
            "test": scores.get(name),
            "curves": run.curves,
        }
        for name, run in runs.items()
    ]
    return json_text({"runs": entries}, indent=1)


# -- figures ---------------------------------------------------------------------------------------------------


def _draw_curves(runs: Mapping[str, RunResults], path: Path) -> None:
    from caption.training.learning_curves import plot_learning_curves
    from caption.visualize import save_figure

    with reported_as(UserError, "--curves", ValueError):
        fig = plot_learning_curves({name: run.curves for name, run in runs.items()})
    save_figure(fig, path, opener=replacing_own)


def _draw_maps(plan: Plan) -> bool:
    """Draw the maps of the runs that have a model, of the photos that can be read; whether these are all."""
    from caption.visualize import compare_captions, save_figure, save_html, to_html

    with_model = {name: run for name, run in plan.runs.items() if run.best.is_file()}
    for name in plan.runs.keys() - with_model.keys():
        say("compare", f"{name} has no {plan.runs[name].best.name}, so its maps are not drawn")
    if not with_model:
        return False
    captions, failed = _captions(with_model, plan.inputs, plan.trust)
    readable = [index for index in range(len(plan.inputs.photos)) if index not in failed]
    for index in readable if plan.maps else ():
        of_photo = {name: of_run[index] for name, of_run in captions.items()}
        image = next(iter(of_photo.values())).image
        assert image is not None
        save_figure(compare_captions(of_photo, image), plan.maps[index], opener=replacing_own)
    if plan.page and readable:
        shown = {name: [of_run[index] for index in readable] for name, of_run in captions.items()}
        save_html(to_html(shown, "Where the models looked"), plan.page, opener=replacing_own)
    return not failed and len(with_model) == len(plan.runs)


def _captions(
    runs: dict[str, RunResults], inputs: Inputs, trust: Sequence[str]
) -> tuple[dict[str, dict[int, Caption]], set[int]]:
    """The captions of each run's best model by the index of their photo, and the photos that cannot be read."""
    from caption.models.model_zoo import load

    captions: dict[str, dict[int, Caption]] = {}
    failed: dict[int, str] = {}
    with progress_bar("captioning", len(runs) * len(inputs.photos), unit="photos") as advance:
        for name, run in runs.items():
            of_run = captions[name] = {}
            for index, caption in enumerate(load(run.best, trust=trust).describe_each(inputs.sources)):
                if isinstance(caption, ImageError):
                    failed[index] = str(caption)
                else:
                    of_run[index] = caption
                advance(1)
    for message in failed.values():
        say("compare", message)
    return captions, set(failed)
