"""`caption analyse`: where models look, and whether that is why they say it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import add_trust, verb_parser
from caption.cli.exit_codes import DONE
from caption.errors import UserError

if TYPE_CHECKING:
    from caption.captioner import Captioner

DESCRIPTION = """\
Measure on Shapes where models look, and whether that is why they say it: the pointing game, deletion and insertion,
permuted and exchanged maps, agreement of models. Writes a page of tables and a figure of the same name.

  caption analyse                                                      the installed models, some minutes
  caption analyse --limit 50 --model mine=runs/mine/best.ckpt          a quick look at another one

A model must caption Shapes. On a page that exists, the measured sections are replaced and the prose is kept.
"""
MODELS = ("soft=shapes", "hard=shapes-hard")
ALL = 500
"""Scenes of the test split."""


def main(args: list[str]) -> int:
    """Run `caption analyse`."""
    options = make_parser().parse_args(args)
    if options.limit < 2:
        raise UserError(f"--limit {options.limit}: at least 2, since maps are exchanged between scenes")
    if not options.out.parent.is_dir() or options.out.suffix != ".md":
        raise UserError(f"--out {options.out}: name a .md file in an existing folder")
    named = _models(options.model or MODELS)
    _write(named, options)
    return DONE


def make_parser() -> argparse.ArgumentParser:
    """The options of `caption analyse`."""
    parser = verb_parser("analyse", DESCRIPTION)
    add = parser.add_argument
    help_ = f"its name in the tables, and a checkpoint or an installed model; default {' and '.join(MODELS)}"
    add("--model", action="append", metavar="NAME=MODEL", help=help_)
    add("--limit", type=int, default=ALL, metavar="N", help=f"test scenes; default all, {ALL}")
    add("--out", type=Path, default=Path("analysis.md"), metavar="FILE.md", help="default analysis.md")
    add_trust(parser)
    return parser


def _models(entries: Sequence[str]) -> dict[str, str]:
    """Models by their names in the tables."""
    named: dict[str, str] = {}
    for entry in entries:
        name, _, model = entry.partition("=")
        if not name or not model or name in named:
            raise UserError(f"--model {entry}: write NAME=MODEL, such as soft=shapes, each name once")
        named[name] = model
    return named


def _write(named: dict[str, str], options: argparse.Namespace) -> None:
    """Measure the models, and write the page and its figure."""
    import tempfile

    import torch

    from caption.analysis.agreement import agree
    from caption.models.model_zoo import load
    from caption.reports.analysis import analyse, draw, make_scenes, say
    from caption.reports.analysis_tables import Setting, write_report
    from caption.reports.documents import write_sections

    captioners: dict[str, Captioner] = {
        name: load(model, trust=options.trust) for name, model in named.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        scenes = make_scenes(Path(folder), options.limit)
        analyses = [analyse(name, captioner, scenes) for name, captioner in captioners.items()]
        agreements = {
            (a.name, b.name): agree(a.captioner, b.captioner, scenes.photos, a.captions)
            for a, b in combinations(analyses, 2)
        }
    picture = options.out.with_suffix(".png")
    draw(analyses, picture)
    arguments = "".join(f" --model {shlex.quote(model)}" for model in options.model or ())
    arguments += "" if options.limit == ALL else f" --limit {options.limit}"
    setting = Setting(options.limit, scenes.sigma, torch.get_num_threads(), picture.name, arguments)
    template = options.out if options.out.is_file() else page()
    write_sections(options.out, write_report(analyses, agreements, setting), template=template)
    say(f"caption analyse: wrote {options.out} and {picture}")


def page() -> Path:
    """docs/analysis.md, which is inside the package when it is installed and beside it in a clone."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "docs" / "analysis.md"
    return installed if installed.exists() else package.parent / "docs" / "analysis.md"
