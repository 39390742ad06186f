"""Train attention mechanisms on Shapes under one budget, and write docs/attention.md, its picture and its page.

    python -m tools.compare_attention                              # what is not done yet, of all of configs/attention
    python -m tools.compare_attention --names additive dot --seeds 1
    python -m tools.compare_attention --names --write              # trains nothing, writes the documents

Each mechanism is a file of configs/attention, laid over configs/shapes_soft.yaml. A run is one mechanism with one
seed. Its result and its checkpoint are kept in --out: a run that is done is not repeated, unless its configuration has
changed. Ctrl-C loses the present run only. The documents cover all runs of the folder. --write replaces the section
of --document with the table and keeps the prose around it. Beside the document it writes files of the same name that
end in .json (numbers), .png (the picture) and .html (the page).
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
from caption.errors import UserError
from tools import make_parser
from tools.compare_attention.bench import Bench, Budget, write_json
from tools.compare_attention.mechanisms import CONFIGS, Mechanism, chosen, read_mechanisms
from tools.compare_attention.pictures import PAGE_SCENES, SCENES, choose_words, draw, load_models, page
from tools.compare_attention.report import summary, table
from tools.compare_attention.runs import Job, in_processes, one_by_one
from tools.documents import write_sections

DOCUMENT = CONFIGS.parent / "docs" / "attention.md"
EPOCHS, SCENES_TRAINED = 4, 4000
"""The budget at which additive attention describes Shapes well (BLEU-4 above 0.9), in about a minute."""
SOME_FAILED, WRONG_USAGE, STOPPED = 1, 2, 130


def main(args: Sequence[str] | None = None) -> int:
    """Train what is missing, and report. Exit codes: 0 done, 1 some runs failed, 2 wrong usage, 130 stopped."""
    parser = _parser()
    options = parser.parse_args(args)
    for name in ("seeds", "epochs", "scenes", "test_scenes", "processes", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}, and must be at least 1")
    torch.set_num_threads(options.threads)
    budget = Budget(options.epochs, options.scenes, options.test_scenes, options.shared_encoder)
    try:
        mechanisms = read_mechanisms(options.configs)
        named = chosen(mechanisms, list(mechanisms) if options.names is None else options.names)
        bench = Bench(budget, options.out)
        jobs = [Job(each, seed) for seed in range(options.seeds) for each in named]
        jobs = [job for job in jobs if bench.result(*job) is None]
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
    for name, mechanism in mechanisms.items():
        results = [bench.result(mechanism, seed) for seed in range(options.seeds)]
        if there := [each for each in results if each is not None]:
            found[name] = there
    if not found:
        raise UserError(f"{bench.folder} holds no results yet: name mechanisms with --names")
    summaries = {name: summary(results, mechanisms[name]) for name, results in found.items()}
    text = table(summaries, bench.budget, _command(options))
    print(text)
    if not options.write:
        return
    document: Path = options.document
    write_sections(document, {"mechanisms": text})
    write_json(document.with_suffix(".json"), {"budget": asdict(bench.budget), "mechanisms": summaries})
    reader = bench.reader()
    scenes, boxes = reader.read()["test"], reader.boxes("test")
    checkpoints = {name: bench.checkpoint(name, results[0]["seed"]) for name, results in found.items()}
    models = load_models(checkpoints)
    draw(models, choose_words(scenes[:SCENES], boxes), document.with_suffix(".png"))
    page(models, scenes[:PAGE_SCENES], document.with_suffix(".html"))
    print(f"compare_attention: wrote {document}, .json, .png and .html", file=sys.stderr)


def _command(options: argparse.Namespace) -> str:
    budget = f"--seeds {options.seeds} --epochs {options.epochs} --scenes {options.scenes}"
    own = "" if options.shared_encoder else " --no-shared-encoder"
    return f"python -m tools.compare_attention {budget}{own} --write"


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("compare_attention", __doc__)
    add = parser.add_argument
    add("--names", nargs="*", metavar="NAME", help="mechanisms to train; default all")
    add("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N − 1; default 3")
    add("--epochs", type=int, default=EPOCHS, metavar="E", help=f"default {EPOCHS}")
    add(
        "--scenes",
        type=int,
        default=SCENES_TRAINED,
        metavar="N",
        help=f"to train on; default {SCENES_TRAINED}",
    )
    add("--test-scenes", type=int, default=500, metavar="N", help="to measure on; default 500")
    add(
        "--shared-encoder",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="all read the regions of one frozen encoder, computed once (default), or each trains its own",
    )
    add("--processes", type=int, default=1, metavar="P", help="runs at the same time; default 1")
    add("--threads", type=int, default=1, metavar="T", help="threads of each process; default 1")
    add("--write", action="store_true", help="write the document, its numbers, picture and page")
    add("--document", type=Path, default=DOCUMENT, metavar="FILE.md", help="default docs/attention.md")
    add(
        "--configs", type=Path, default=CONFIGS / "attention", metavar="DIR", help="default configs/attention"
    )
    add(
        "--out",
        type=Path,
        default=Path("runs/compare_attention"),
        metavar="DIR",
        help="results and checkpoints",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
