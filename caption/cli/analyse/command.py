"""`caption analyse`: where models look, and whether that is why they say it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from caption.cli.analyse.photos import analyse_photos
from caption.cli.analyse.scenes import ALL, MODELS, analyse_scenes
from caption.cli.configuration.arguments import add_trust, count, verb_parser
from caption.errors import UserError

DESCRIPTION = """\
Measure where models look, and whether that is why they say it.

  caption analyse --model runs/mine/best.ckpt --photos in/             your photos: one page with pictures, and JSON
  caption analyse --photos val2017/ --boxes instances_val2017.json \\
      --references captions_val2017.json --limit 200                   with boxes and people's captions: more of it
  caption analyse                                                      the installed models on Shapes, some minutes

On photos: does attention lie on what the words name (with --boxes), do the words depend on the regions and on their
maps, how concentrated are the maps, do several models agree, who is named (with --references). The page shows the
photos with the best and the worst maps. Without --photos, models that caption Shapes are measured on its test split,
where the truth is known: a page of tables and a figure of the same name.
"""
EPILOG = """\
Boxes are those of COCO's instances_*.json (polygons and run-length codes count as masks, crowds are left out), or a
JSON object of photos by name: {"a.jpg": {"size": [640, 480], "objects": [{"kind": "person", "names": ["man", "boy"],
"box": [left, top, right, bottom]}]}}. Photos are found by the names of their files.

With --references the pointing game is played on people's captions, which the models are fed, else on the models' own.

exit code: 0 all measured; 1 some photos could not be read: they are named on stderr, and the others are measured; 2
wrong usage
"""


def main(args: list[str]) -> int:
    """Run `caption analyse`; EPILOG tells the exit codes."""
    options = make_parser().parse_args(args)
    about_photos = ("boxes", "references", "recursive")
    if not options.photos and (
        given := next((name for name in about_photos if getattr(options, name)), None)
    ):
        raise UserError(f"--{given} is about photos: name them with --photos")
    if options.split and not options.references:
        raise UserError("--split is about people's captions: name them with --references")
    options.models = _models(options.model or (["photos"] if options.photos else MODELS))
    return analyse_photos(options) if options.photos else analyse_scenes(options)


def make_parser() -> argparse.ArgumentParser:
    """The options of `caption analyse`."""
    parser = verb_parser("analyse", DESCRIPTION, EPILOG)
    add = parser.add_argument
    help_ = (
        "a checkpoint or an installed model, and its name on the page; may be repeated; default photos, and on Shapes "
        f"{' and '.join(MODELS)}"
    )
    add("--model", action="append", metavar="[NAME=]MODEL", help=help_)
    help_ = "folders, files or quoted patterns; at least two photos"
    add("--photos", nargs="+", default=[], metavar="DIR", help=help_)
    add("--recursive", action="store_true", help="also take the photos in subfolders")
    add(
        "--boxes",
        nargs="+",
        default=[],
        metavar="FILE.json",
        help="boxes of objects in the photos, see below",
    )
    help_ = "people's captions of the photos, in any format that caption score reads"
    add("--references", metavar="FILE", help=help_)
    add("--split", metavar="NAME", help="of references that have splits")
    help_ = f"the first N photos; or test scenes, by default all {ALL}"
    add("--limit", type=count, metavar="N", help=help_)
    help_ = "default analysis.html, and on Shapes analysis.md; the JSON, or the figure, has the same name"
    add("--out", metavar="FILE", help=help_)
    add("--device", default="cpu", metavar="D", help="cpu, cuda, cuda:1, mps; default cpu")
    add_trust(parser)
    return parser


def _models(entries: Sequence[str]) -> dict[str, str]:
    """Models by their names on the page: NAME=MODEL, or a model alone, which is called like its file or folder."""
    models: dict[str, str] = {}
    for entry in entries:
        name, equals, model = entry.partition("=")
        if not equals or os.path.exists(entry):  # "runs/lr=0.1/best.ckpt"
            stem = os.path.splitext(os.path.basename(entry))[0]
            folder = os.path.basename(os.path.dirname(os.path.abspath(entry)))
            name, model = (folder if stem in ("best", "last") else stem), entry
        if not name or not model or name in models:
            raise UserError(f"--model {entry}: write NAME=MODEL, such as soft=shapes, each name once")
        models[name] = model
    return models
