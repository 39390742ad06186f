"""Train attention mechanisms alike, and write docs/results/attention.md with its tables, pictures and page.

    python -m tools.compare_attention --names additive dot --seeds 0
    python -m tools.compare_attention --names additive dot --trainer.max_epochs 4 --data.captions_per_image 1
    python -m tools.compare_attention --names --write              # trains nothing, writes the documents
    python -m tools.compare_attention --pixels --names additive dot --seeds 0
    python -m tools.compare_attention --flickr8k DATA --seeds 0

A run is one mechanism with one seed: `caption fit -c configs/shapes_soft.yaml -c configs/attention/NAME.yaml` into
OUT/NAME-SEED, `caption test` of its best model, and a measurement of deletion. Under the mechanism lies
configs/training/frozen_encoder.yaml: all read the stored regions of one encoder, which takes less than a minute a run;
with --pixels, each trains an encoder, as configs/shapes_soft.yaml says, in three. With --flickr8k, a chosen set is laid
over configs/flickr8k_small.yaml. Further arguments go to both commands, for all mechanisms alike: epochs, captions per
image, `-c` with a configuration of your own, ...

Stop it at any moment: the same command goes on. A run that is done is not repeated, and neither is one whose numbers
are published beside the document with the same settings, unless --anew is given. Several of these commands may run at
the same time with other --names. --write replaces the tables of --document and keeps the prose around them. Beside the
document it writes the numbers of all runs (.json), and for Shapes a picture of each family (_FAMILY.png) and the page
of all (_gallery.html), from the checkpoints.
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
from tools.compare_attention.gallery import gallery, picture, verdicts
from tools.compare_attention.mechanisms import REFERENCE, Mechanism, by_family, choose, read_mechanisms
from tools.compare_attention.page import save_page
from tools.compare_attention.pictures import DRAWN, choose_words, draw
from tools.compare_attention.report import (
    Summaries,
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
SCENES = 6
"""On the page; the first of the test split."""


class Base(NamedTuple):
    """A configuration over which mechanisms are laid."""

    name: str
    section: str
    """Of the document that holds the table."""
    suffix: str = ""
    """Of the name of the JSON file beside the document."""
    names: tuple[str, ...] | None = None
    """The mechanisms that are compared; None = all overlays over it."""
    over: tuple[str, ...] = ()
    """Configurations that are laid over it for all mechanisms."""
    stored: bool = True
    """Whether the regions of its encoder are computed once."""
    regions: str = ""
    """What the document says of them."""


SHAPES = Base(
    "shapes_soft",
    "mechanisms",
    over=("training/frozen_encoder",),
    regions="All mechanisms read the stored regions of one frozen encoder, that of the installed model `shapes`, which "
    "was trained together with additive attention: they differ in nothing else, and a run takes less than a minute "
    "of a core instead of three. Those with a second encoder, and their controls, train both encoders from images, "
    "with the 8 epochs and three captions of each image of configs/shapes_soft.yaml: with 4 and one they do not learn "
    "where things are.",
)
PIXELS = Base(
    "shapes_soft",
    "pixels",
    "_pixels",
    stored=False,
    regions="Each mechanism trains an encoder of its own from images.",
)
FLICKR8K = Base(
    "flickr8k_small",
    "flickr8k",
    "_flickr8k",
    (
        *("show_and_tell", "mean_pooling", "additive", "dot", "general", "multi_head", "local_predicted"),
        *("sparsemax", "cbam", "self_attention", "sentinel", "top_down", "parent_weighted", "hard"),
        "transformer",
    ),
)


def main(args: Sequence[str] | None = None) -> int:
    """Train what is missing, and report. Exit codes: 0 done, 1 some runs failed, 2 wrong usage; 130 or 143 stopped."""
    options, more = _parser().parse_known_args(args)
    base = FLICKR8K if options.flickr8k is not None else PIXELS if options.pixels else SHAPES
    document: Path = options.document
    numbers = document.with_name(f"{document.stem}{base.suffix}.json")
    try:
        known = [] if options.anew else published_results(read_published(numbers))
        data = [] if options.flickr8k is None else data_arguments(options.flickr8k)
        out = options.out or Path(f"runs/compare{base.suffix}")
        bench = Bench(out, more, data, base.stored, known)
        over = [CONFIGS / f"{name}.yaml" for name in base.over]
        mechanisms = read_mechanisms(options.configs, CONFIGS / f"{base.name}.yaml", base.names, over)
        chosen = choose(mechanisms, list(mechanisms) if options.names is None else options.names)
        failed = train(bench, chosen, options.seeds)
        seeds = sorted({*options.seeds, *(seed for _, seed in bench.published)})
        summaries = {
            name: summarise(results, mechanism)
            for name, mechanism in mechanisms.items()
            if (results := [found for seed in seeds if (found := bench.result(mechanism, seed))])
        }
        on = ["--flickr8k", "DATA"] if base is FLICKR8K else ["--pixels"] * options.pixels
        seeds_and_more = ["--seeds", *map(str, options.seeds), *more]
        command = shlex.join(["python", "-m", "tools.compare_attention", *on, *seeds_and_more, "--write"])
        if not summaries:
            raise UserError(f"{bench.folder} has no results yet: name mechanisms with --names")
        published = {"setting": describe(summaries, command, base.regions), "mechanisms": summaries}
        print(tables(published, mechanisms))
        if options.write:
            if base is SHAPES:
                draw_all(bench, mechanisms, summaries, document)
            write_sections(document, _sections(base, published, mechanisms, document))
            write_json(numbers, published)
            print(f"compare_attention: wrote {document} and its .json", file=sys.stderr)
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


def draw_all(bench: Bench, mechanisms: Mapping[str, Mechanism], summaries: Summaries, document: Path) -> None:
    """Write the picture of each family, and the page of all.

    A picture stays as it is while one of its mechanisms was measured in a folder that is not here. The page stays as it
    is of these mechanisms.
    """
    paths = {name: bench.checkpoint(name, summary["runs"][0]["seed"]) for name, summary in summaries.items()}
    models = {name: checkpoint.load(path) for name, path in paths.items() if path.exists()}
    missing = [name for name in paths if name not in models]
    unknown: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        reader = Shapes(folder, train=1, val=1, test=SCENES)
        scenes = reader.read()["test"]
        boxes = reader.boxes("test")
        words = choose_words(scenes[:DRAWN], boxes)
        families = by_family(mechanisms, mechanisms)
        for kin, members in families.items():
            if any(name in models for name in members) and not set(members) & set(missing):
                draw({name: models.get(name) for name in members}, words, picture(document, kin))
        if models:
            in_order = [name for members in families.values() for name in members if name in paths]
            shown = {name: models.get(name) for name in in_order}
            unknown = save_page(shown, mechanisms, scenes, boxes, page_of(document))
    if missing:
        print(
            f"compare_attention: no checkpoints of {first_few(missing)} in {bench.folder}: the pictures of their "
            "families stay, and what the page shows of them",
            file=sys.stderr,
        )
    if unknown:
        print(f"compare_attention: the page stays: it has never shown {first_few(unknown)}", file=sys.stderr)


def page_of(document: Path) -> Path:
    """The page of all mechanisms, beside the document."""
    return document.with_name(f"{document.stem}_gallery.html")


def _sections(
    base: Base, published: Mapping[str, Any], mechanisms: Mapping[str, Mechanism], document: Path
) -> dict[str, str]:
    sections = {base.section: tables(published, mechanisms)}
    if base is SHAPES:
        sections[f"{base.section} gallery"] = gallery(mechanisms, document)
        sections[f"{base.section} verdicts"] = verdicts(published["mechanisms"])
        sections[f"{base.section} differences"] = differences(published["mechanisms"], mechanisms)
        sections[f"{base.section} equations"] = equations(mechanisms)
    return sections


def _parser() -> ArgumentParser:
    parser = make_parser("compare_attention", __doc__)
    add = parser.add_argument
    add("--names", nargs="*", metavar="NAME", help="mechanisms to train; default all")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="default 0 1 2")
    base = parser.add_mutually_exclusive_group()
    base.add_argument("--flickr8k", type=Path, metavar="DATA", help="folder of Flickr8k; default is Shapes")
    base.add_argument(
        "--pixels", action="store_true", help="Shapes, with an encoder that is trained with each mechanism"
    )
    add("--anew", action="store_true", help="repeat runs whose numbers are published")
    add("--write", action="store_true", help="write the document, its numbers, picture and page")
    document = CONFIGS.parent / "docs" / "results" / "attention.md"
    add(
        "--document", type=Path, default=document, metavar="FILE.md", help="default docs/results/attention.md"
    )
    overlays = CONFIGS / "attention"
    add("--configs", type=Path, default=overlays, metavar="DIR", help="default configs/attention")
    help_ = "folder of the runs; default runs/compare, runs/compare_pixels or runs/compare_flickr8k"
    add("--out", type=Path, metavar="DIR", help=help_)
    return parser


if __name__ == "__main__":
    sys.exit(main())
