"""Train attention mechanisms alike, and write docs/results/attention.md with its tables, its picture and its page.

    python -m tools.compare_attention --names additive dot --seeds 0
    python -m tools.compare_attention --names additive dot --trainer.max_epochs 4 --data.captions_per_image 1
    python -m tools.compare_attention --names --write              # trains nothing, writes the documents
    python -m tools.compare_attention --flickr8k DATA --seeds 0

A run is one mechanism with one seed: `caption fit -c configs/shapes_soft.yaml -c configs/attention/NAME.yaml` into
OUT/NAME-SEED, `caption test` of its best model, and a measurement of deletion. Further arguments go to both commands,
for all mechanisms alike: epochs, captions per image, `-c` with a configuration of your own, ... With --flickr8k, a
chosen set is laid over configs/flickr8k_small.yaml, and reads stored regions.

Stop it at any moment: the same command goes on. A run that is done is not repeated, and neither is one whose numbers
are published beside the document with the same settings, unless --anew is given. Several of these commands may run at
the same time with other --names. --write replaces the tables of --document and keeps the prose around them. Beside the
document it writes the numbers of all runs (.json), and for Shapes the picture (.png) and the page (.html), which need
the checkpoints of all mechanisms.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from caption import checkpoint
from caption.cli.exit_codes import DONE
from caption.data.shapes import Shapes
from caption.errors import UserError, first_few
from tools import make_parser
from tools.compare_attention.differences import differences
from tools.compare_attention.mechanisms import REFERENCE, Mechanism, choose, read_mechanisms
from tools.compare_attention.pictures import SCENES, choose_words, draw, page
from tools.compare_attention.report import (
    FIT,
    describe,
    equations,
    published_results,
    read_published,
    summarise,
    tables,
)
from tools.compare_attention.runs import Bench, write_json
from tools.documents import write_sections
from tools.reproduce.flickr8k import data_arguments
from tools.reproduce.runs import CONFIGS

SOME_FAILED, WRONG_USAGE = 1, 2


class Base(NamedTuple):
    """A configuration over which mechanisms are laid."""

    name: str
    section: str
    """Of the document that holds the table."""
    suffix: str
    """Of the name of the JSON file beside the document."""
    names: tuple[str, ...] | None
    """The mechanisms that are compared; None = all overlays over it."""


SHAPES = Base("shapes_soft", "mechanisms", "", None)
FLICKR8K = Base(
    "flickr8k_small",
    "flickr8k",
    "_flickr8k",
    (
        *("show_and_tell", "mean_pooling", "additive", "dot", "general", "multi_head", "local_predicted"),
        *(
            "sparsemax",
            "cbam",
            "self_attention",
            "sentinel",
            "top_down",
            "parent_weighted",
            "hard",
            "transformer",
        ),
    ),
)


def main(args: Sequence[str] | None = None) -> int:
    """Train what is missing, and report. Exit codes: 0 done, 1 some runs failed, 2 wrong usage; 130 or 143 stopped."""
    options, more = _parser().parse_known_args(args)
    base = SHAPES if options.flickr8k is None else FLICKR8K
    document: Path = options.document
    numbers = document.with_name(f"{document.stem}{base.suffix}.json")
    try:
        published = read_published(numbers)
        known = [] if options.anew else published_results(published)
        data = [] if options.flickr8k is None else data_arguments(options.flickr8k)
        out = options.out or Path(f"runs/compare{base.suffix}")
        bench = Bench(out, [*data, *more], base is FLICKR8K, known)
        mechanisms = read_mechanisms(options.configs, CONFIGS / f"{base.name}.yaml", base.names)
        chosen = choose(mechanisms, list(mechanisms) if options.names is None else options.names)
        failed = train(bench, chosen, options.seeds)
        seeds = sorted({*options.seeds, *(seed for _, seed in bench.published)})
        summaries = {
            name: summarise(results, mechanism)
            for name, mechanism in mechanisms.items()
            if (results := [found for seed in seeds if (found := bench.result(mechanism, seed))])
        }
        data = [] if options.flickr8k is None else ["--flickr8k", "DATA"]
        seeds_and_more = ["--seeds", *map(str, options.seeds), *more]
        command = shlex.join(["python", "-m", "tools.compare_attention", *data, *seeds_and_more, "--write"])
        if summaries:
            content = {"setting": describe(summaries, command), "mechanisms": summaries}
            published = {FIT: content} | {way: old for way, old in published.items() if way != FIT}
        if not published:
            raise UserError(f"{bench.folder} has no results yet: name mechanisms with --names")
        print(tables(published))
        if options.write:
            write_sections(document, _sections(base, published))
            write_json(numbers, published)
            drawn = base is SHAPES and draw_all(bench, published, document)
            print(
                f"compare_attention: wrote {document} and its .json{', .png and .html' * drawn}",
                file=sys.stderr,
            )
    except UserError as error:
        print(f"compare_attention: {error}", file=sys.stderr)
        return WRONG_USAGE
    return SOME_FAILED if failed else DONE


def train(bench: Bench, mechanisms: Sequence[Mechanism], seeds: Sequence[int]) -> int:
    """Do the runs that are missing; returns how many failed. `caption` names the reason on stderr."""
    failed = 0
    for seed in seeds:
        for mechanism in mechanisms:
            needed = mechanism.name == REFERENCE and any(other.warm for other in mechanisms)
            if bench.result(mechanism, seed) and not (
                needed and not bench.checkpoint(mechanism.name, seed).exists()
            ):
                continue
            try:
                bench.run(mechanism, seed)
            except SystemExit as leaving:
                if isinstance(leaving.code, int) and leaving.code > 128:
                    raise  # by a signal, which ends the whole command
                failed += 1
                print(f"compare_attention: {mechanism.name}, seed {seed}, failed", file=sys.stderr)
    return failed


def draw_all(bench: Bench, published: Mapping[str, Any], document: Path) -> bool:
    """Write the picture and the page; returns whether it could: all mechanisms of the document need a checkpoint."""
    seeds = {
        name: summary["runs"][0]["seed"]
        for way in published.values()
        for name, summary in way["mechanisms"].items()
    }
    paths = {name: bench.checkpoint(name, seed) for name, seed in seeds.items()}
    if missing := [name for name, path in paths.items() if not path.exists()]:
        print(
            f"compare_attention: picture and page stay, without checkpoints of {first_few(missing)}",
            file=sys.stderr,
        )
        return False
    models = {name: checkpoint.load(path) for name, path in paths.items()}
    with tempfile.TemporaryDirectory() as folder:
        reader = Shapes(folder, train=1, val=1, test=SCENES)
        scenes = reader.read()["test"]
        draw(models, choose_words(scenes, reader.boxes("test")), document.with_suffix(".png"))
        page(models, scenes, document.with_suffix(".html"))
    return True


def _sections(base: Base, published: Mapping[str, Any]) -> dict[str, str]:
    sections = {base.section: tables(published)}
    if base is SHAPES:
        blocks = []
        for way, content in published.items():
            heading = [f"Measured by {way}:"] if len(published) > 1 else []
            blocks += [*heading, differences(content["mechanisms"])]
        sections[f"{base.section} differences"] = "\n\n".join(blocks)
        sections[f"{base.section} equations"] = equations(published)
    return sections


def _parser() -> ArgumentParser:
    parser = make_parser("compare_attention", __doc__)
    add = parser.add_argument
    add("--names", nargs="*", metavar="NAME", help="mechanisms to train; default all")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="default 0 1 2")
    add("--flickr8k", type=Path, metavar="DATA", help="folder of Flickr8k; default is Shapes")
    add("--anew", action="store_true", help="repeat runs whose numbers are published")
    add("--write", action="store_true", help="write the document, its numbers, picture and page")
    document = CONFIGS.parent / "docs" / "results" / "attention.md"
    add(
        "--document", type=Path, default=document, metavar="FILE.md", help="default docs/results/attention.md"
    )
    overlays = CONFIGS / "attention"
    add("--configs", type=Path, default=overlays, metavar="DIR", help="default configs/attention")
    help_ = "folder of the runs; default runs/compare or runs/compare_flickr8k"
    add("--out", type=Path, metavar="DIR", help=help_)
    return parser


if __name__ == "__main__":
    sys.exit(main())
