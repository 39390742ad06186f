"""How many seeds of a mechanism learn to point: train it with ten seeds on Shapes, and write docs/results/seeds.md.

    python -m tools.seeds --names general sparsemax
    python -m tools.seeds --names general --attention_temperature.start 1 --out runs/seeds_without
    python -m tools.seeds --names --write              # trains nothing, writes what is known

A run is one of `tools.compare_attention --pixels`: `caption fit` and `caption test` as users run them. The two tools
share their folder, and a run that lies there, or whose scores are in the JSON file beside --document, is not repeated.
Further arguments go to both commands; runs with others stand in rows of their own, and need another --out. Stop it at
any moment: the same command goes on.

--write adds the runs of this command to the JSON file beside --document, and replaces the table in it.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from caption.cli.exit_codes import DONE
from caption.errors import UserError
from tools import make_parser
from tools.compare_attention.__main__ import train
from tools.compare_attention.mechanisms import Mechanism, choose, read_mechanisms
from tools.compare_attention.runs import Bench, write_json
from tools.documents import table, write_sections
from tools.reproduce.runs import CONFIGS

SOME_FAILED, WRONG_USAGE = 1, 2
POINTS = 0.5
"""A run whose pointing accuracy is at least this high has learned to look; chance is 0.07."""
KEPT = ("NLL", "CIDEr", "pointing_accuracy", "attention_in_box", "attention_entropy", "attention_change")
"""Scores that the JSON file keeps."""
Run = dict[str, Any]
"""A run's scores, and the digest of its settings."""


def main(args: Sequence[str] | None = None) -> int:
    """Train what is missing, and report. Exit codes: 0 done, 1 some runs failed, 2 wrong usage; 130 or 143 stopped."""
    options, more = _parser().parse_known_args(args)
    document: Path = options.document
    numbers = document.with_suffix(".json")
    try:
        mechanisms = read_mechanisms(options.configs, CONFIGS / "shapes_soft.yaml")
        rows = {shlex.join([name, *more]): mechanism for name, mechanism in mechanisms.items()}
        before = _read(numbers, mechanisms)
        published = [
            {"mechanism": mechanism.name, "seed": int(seed), "digest": run["digest"], "numbers": run}
            for row, mechanism in rows.items()
            for seed, run in before.get(row, {}).items()
        ]
        bench = Bench(options.out, more, published=published)
        failed = train(bench, choose(mechanisms, options.names), options.seeds)
        known = _read(numbers, mechanisms)  # another of these commands may have written some
        for row, mechanism in rows.items():
            if runs := known.get(row, {}) | _runs(bench, mechanism, options.seeds):
                known[row] = {seed: runs[seed] for seed in sorted(runs, key=int)}
        print(report(known))
        if options.write:
            write_sections(document, {"seeds": report(known)})
            write_json(numbers, known)
    except UserError as error:
        print(f"seeds: {error}", file=sys.stderr)
        return WRONG_USAGE
    return SOME_FAILED if failed else DONE


def _read(numbers: Path, mechanisms: Mapping[str, Mechanism]) -> dict[str, dict[str, Run]]:
    """The published runs by row and seed, without those of other settings than today's."""
    known: dict[str, dict[str, Run]] = {}
    if numbers.exists():
        for row, by_seed in json.loads(numbers.read_text(encoding="utf-8")).items():
            name, *arguments = shlex.split(row)
            digest = mechanisms[name].digest(arguments) if name in mechanisms else None
            if runs := {seed: run for seed, run in by_seed.items() if run["digest"] == digest}:
                known[row] = runs
    return known


def _runs(bench: Bench, mechanism: Mechanism, seeds: Sequence[int]) -> dict[str, Run]:
    """By seed what is known of a mechanism's present settings, from the folder of the runs."""
    found = {seed: bench.result(mechanism, seed) for seed in seeds}
    return {
        str(seed): {"digest": result["digest"], **{name: result["numbers"][name] for name in KEPT}}
        for seed, result in found.items()
        if result and "pointing_accuracy" in result["numbers"]
    }


def report(runs: Mapping[str, Mapping[str, Run]]) -> str:
    """The table: a row for each mechanism and its further arguments."""
    heads = ["mechanism", "point", "pointing of each seed, sorted", "NLL", "CIDEr", "H[α], nats", "seeds"]
    rows = []
    for name, by_seed in sorted(runs.items()):
        pointing = sorted(run["pointing_accuracy"] for run in by_seed.values())
        mechanism, *arguments = shlex.split(name)
        rows.append(
            [
                f"`{mechanism}`" + (f", `{shlex.join(arguments)}`" if arguments else ""),
                f"{sum(value >= POINTS for value in pointing)} of {len(pointing)}",
                ", ".join(f"{value:.2f}" for value in pointing),
                *(_range([run[score] for run in by_seed.values()]) for score in ("NLL", "CIDEr")),
                _range([run["attention_entropy"] for run in by_seed.values()]),
                ", ".join(by_seed),
            ]
        )
    return (
        f'Written by `python -m tools.seeds`: scores of 500 test scenes. "point": seeds with a pointing accuracy of '
        f"{POINTS} or more; NLL per word, CIDEr and entropy: median (least to largest).\n\n{table(heads, rows)}"
    )


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _parser() -> ArgumentParser:
    parser = make_parser("seeds", __doc__)
    add = parser.add_argument
    add("--names", nargs="*", default=[], metavar="NAME", help="mechanisms to train; default none")
    add("--seeds", type=int, nargs="+", default=[*range(10)], metavar="N", help="default 0 to 9")
    add("--write", action="store_true", help="write the table into the document, and the numbers beside it")
    document = CONFIGS.parent / "docs" / "results" / "seeds.md"
    add("--document", type=Path, default=document, metavar="FILE.md", help="default docs/results/seeds.md")
    overlays = CONFIGS / "attention"
    add("--configs", type=Path, default=overlays, metavar="DIR", help="default configs/attention")
    folder = Path("runs/compare_pixels")
    add("--out", type=Path, default=folder, metavar="DIR", help=f"folder of the runs; default {folder}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
