"""Train attention mechanisms under one budget, and write docs/attention.md with its tables, its picture and its page.

    python -m tools.compare_attention                              # what is not done yet, of all of configs/attention
    python -m tools.compare_attention --names additive dot --seeds 1
    python -m tools.compare_attention --names --write              # trains nothing, writes the documents
    python -m tools.compare_attention --flickr8k DATA --weights mobilenet_v2_imagenet_features.pth --seeds 1

Each mechanism is a file of configs/attention, laid over configs/shapes_soft.yaml; with --flickr8k, a chosen set is laid
over configs/flickr8k_small.yaml. A run is one mechanism with one seed. Its result and its checkpoint are kept in --out:
a run that is done is not repeated, unless its configuration has changed. Ctrl-C loses the present run only. --write
replaces the sections of --document with the tables and keeps the prose around them. Beside the document it writes the
numbers of all runs (.json), and for Shapes the picture (.png) and the page (.html), which need the checkpoints. Runs
whose numbers the .json already has under the same budget are not repeated either, unless --anew is given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from caption.cli.exit_codes import DONE
from caption.errors import UserError, first_few
from tools import make_parser
from tools.compare_attention.bench import Bench, write_json
from tools.compare_attention.data_sets import CONFIGS, Budget, DataSet, Flickr8kData, ShapesData
from tools.compare_attention.differences import differences
from tools.compare_attention.lessons import lessons
from tools.compare_attention.mechanisms import WARM, Mechanism, chosen, read_mechanisms
from tools.compare_attention.pictures import PAGE_SCENES, SCENES, choose_words, draw, load_models, page
from tools.compare_attention.published import read_published
from tools.compare_attention.report import summary, table
from tools.compare_attention.runs import Job, in_processes, one_by_one
from tools.documents import write_sections

DOCUMENT = CONFIGS.parent / "docs" / "attention.md"
EPOCHS, IMAGES, TEST_IMAGES = 4, 4000, 500
"""The budget at which additive attention describes Shapes well (BLEU-4 above 0.9), in about a minute."""
CAPTIONS = 1
"""Per image and epoch. Three of each scene take twice the time and change additive attention's scores little."""
FLICKR8K_EPOCHS = 4
SOME_FAILED, WRONG_USAGE, STOPPED = 1, 2, 130


def main(args: Sequence[str] | None = None) -> int:
    """Train what is missing, and report. Exit codes: 0 done, 1 some runs failed, 2 wrong usage, 130 stopped."""
    parser = _parser()
    options = parser.parse_args(args)
    for name in ("seeds", "epochs", "images", "test_images", "captions", "processes", "threads"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}, and must be at least 1")
    if (options.flickr8k is None) != (options.weights is None):
        parser.error("--flickr8k and --weights belong together")
    torch.set_num_threads(options.threads)
    try:
        bench = _bench(options)
        data_set = bench.data_set
        mechanisms = read_mechanisms(options.configs, data_set.base, data_set.names)
        named = chosen(mechanisms, list(mechanisms) if options.names is None else options.names)
        jobs = [Job(each, seed) for seed in range(options.seeds) for each in named]
        starts = any(each.warm for each in named)
        jobs = [
            job
            for job in jobs
            if bench.result(*job) is None
            or (starts and job.mechanism.name == WARM and not bench.checkpoint(*job).exists())
        ]
        if jobs:
            bench.prepare(dict.fromkeys(job.mechanism for job in jobs))
        failed = train(bench, jobs, options.processes, options.threads)
        report(bench, mechanisms, options)
    except UserError as error:
        print(f"compare_attention: {error}", file=sys.stderr)
        return WRONG_USAGE
    except KeyboardInterrupt:
        print("compare_attention: stopped; the same command goes on from here", file=sys.stderr)
        return STOPPED
    return SOME_FAILED if failed else DONE


def train(bench: Bench, jobs: Sequence[Job], processes: int, threads: int) -> int:
    """Do the jobs with progress on stderr; returns how many failed, each named with its reason."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}")
    console = Console(stderr=True)
    failed = done = 0
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not jobs) as bar:
        task = bar.add_task("training", total=len(jobs), status=f"0 of {len(jobs)} runs")

        def advance(share: float) -> None:
            bar.advance(task, share)

        def begin(job: Job) -> None:
            bar.update(task, description=str(job))

        # Those that start from another model come when it is trained.
        for warm in (False, True):
            wave = [job for job in jobs if job.mechanism.warm is warm]
            parallel = processes > 1 and len(wave) > 1
            outcomes = (
                in_processes(bench, wave, processes, threads)
                if parallel
                else one_by_one(bench, wave, begin, advance)
            )
            with closing(outcomes):
                for job, result, reason in outcomes:
                    done += 1
                    bar.update(task, completed=done, status=f"{done} of {len(jobs)} runs")
                    if result is None:
                        failed += 1
                        console.print(f"{job}: {reason}", markup=False, highlight=False)
                    else:
                        scores = result["numbers"]
                        line = f"{job}: NLL {scores['NLL']:.3f}, BLEU-4 {scores['BLEU-4']:.3f}"
                        console.print(line, markup=False, highlight=False)
    return failed


def report(bench: Bench, mechanisms: dict[str, Mechanism], options: argparse.Namespace) -> None:
    """Print the table of all runs of the folder; with --write, write the documents."""
    found: dict[str, list[dict[str, Any]]] = {}
    # With fewer seeds than were published, the others would otherwise be lost from the numbers beside the document.
    seeds = sorted({*range(options.seeds), *(seed for _, seed in bench.published)})
    for name, mechanism in mechanisms.items():
        results = [bench.result(mechanism, seed) for seed in seeds]
        if there := [each for each in results if each is not None]:
            found[name] = there
    if not found:
        raise UserError(f"{bench.folder} holds no results yet: name mechanisms with --names")
    summaries = {name: summary(results, mechanisms[name]) for name, results in found.items()}
    data_set = bench.data_set
    text = table(summaries, bench, _command(options))
    print(text)
    if not options.write:
        return
    document: Path = options.document
    sections = {data_set.section: text}
    if len(seeds) > 1:
        sections[f"{data_set.section} differences"] = differences(summaries)
    if isinstance(data_set, ShapesData):
        sections[f"{data_set.section} lessons"] = lessons(summaries)
    write_sections(document, sections)
    write_json(_numbers(options, data_set), {"budget": asdict(bench.budget), "mechanisms": summaries})
    written = f"{document} and its .json"
    if isinstance(data_set, ShapesData):  # photos of Flickr8k may not be published
        reader = data_set.reader()
        scenes, boxes = reader.read()["test"], reader.boxes("test")
        checkpoints = {name: bench.checkpoint(name, results[0]["seed"]) for name, results in found.items()}
        missing = [name for name, path in checkpoints.items() if not path.exists()]
        if missing:
            written += (
                f"; the picture and the page stay, without checkpoints of {first_few(missing)} (see --anew)"
            )
        else:
            models = load_models(checkpoints)
            draw(models, choose_words(scenes[:SCENES], boxes), document.with_suffix(".png"))
            page(models, scenes[:PAGE_SCENES], document.with_suffix(".html"))
            written += ", .png and .html"
    print(f"compare_attention: wrote {written}", file=sys.stderr)


def _bench(options: argparse.Namespace) -> Bench:
    if options.flickr8k is None:
        budget = Budget(
            options.epochs or EPOCHS,
            options.images or IMAGES,
            options.test_images or TEST_IMAGES,
            options.captions or CAPTIONS,
            options.shared_encoder,
        )
        out = options.out or Path("runs/compare_attention")
        data: DataSet = ShapesData(budget, out / "shapes")
    else:
        budget = Budget(options.epochs or FLICKR8K_EPOCHS, 6000, 1000, options.captions or CAPTIONS, True)
        out = options.out or Path("runs/compare_attention_flickr8k")
        data = Flickr8kData(options.flickr8k, options.weights, out / "regions")
    published = {} if options.anew else read_published(_numbers(options, data), budget)
    return Bench(budget, out, data, published)


def _numbers(options: argparse.Namespace, data_set: DataSet) -> Path:
    """The JSON beside the document."""
    document: Path = options.document
    return document.with_name(f"{document.stem}{data_set.suffix}.json")


def _command(options: argparse.Namespace) -> str:
    words = ["python -m tools.compare_attention"]
    if options.flickr8k is not None:
        words.append(f"--flickr8k DATA --weights {options.weights.name}")
    words.append(f"--seeds {options.seeds}")
    chosen = {name: getattr(options, name) for name in ("epochs", "images", "test_images", "captions")}
    words += [f"--{name.replace('_', '-')} {value}" for name, value in chosen.items() if value is not None]
    return " ".join([*words, *([] if options.shared_encoder else ["--no-shared-encoder"]), "--write"])


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("compare_attention", __doc__)
    add = parser.add_argument
    add("--names", nargs="*", metavar="NAME", help="mechanisms to train; default all")
    add("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N − 1; default 3")
    add("--flickr8k", type=Path, metavar="DATA", help="folder of Flickr8k; default is Shapes")
    add(
        "--weights",
        type=Path,
        metavar="FILE",
        help="with --flickr8k: state dict of MobileNetV2 (inputs in -1...1)",
    )
    add("--epochs", type=int, metavar="E", help=f"default {EPOCHS}, on Flickr8k {FLICKR8K_EPOCHS}")
    add("--images", type=int, metavar="N", help=f"scenes to train on; default {IMAGES}")
    add("--test-images", type=int, metavar="N", help=f"scenes to measure on; default {TEST_IMAGES}")
    add(
        "--captions",
        type=int,
        metavar="N",
        help=f"per training image and epoch, drawn anew each time; default {CAPTIONS}",
    )
    add(
        "--shared-encoder",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="all read the regions of one frozen encoder, computed once (default), or each trains its own",
    )
    add("--processes", type=int, default=1, metavar="P", help="runs at the same time; default 1")
    add("--threads", type=int, default=1, metavar="T", help="threads of each process; default 1")
    add(
        "--anew",
        action="store_true",
        help="repeat runs whose numbers are published but whose checkpoints are missing",
    )
    add("--write", action="store_true", help="write the document, its numbers, picture and page")
    add("--document", type=Path, default=DOCUMENT, metavar="FILE.md", help="default docs/attention.md")
    add(
        "--configs", type=Path, default=CONFIGS / "attention", metavar="DIR", help="default configs/attention"
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="results and checkpoints; default runs/compare_attention or runs/compare_attention_flickr8k",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
