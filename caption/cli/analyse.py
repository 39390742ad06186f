"""`caption analyse`: measure where models look, and whether that explains their words."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import (
    add_device,
    add_transformers,
    add_trust,
    count,
    of_transformers,
)
from caption.cli.describe.inputs import STDIN, input_photos, unreadable
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import say
from caption.core.errors import ImageError, UserError, first_few, number_of, printable
from caption.core.runtime.atomic_files import MARK, replacing_own
from caption.core.runtime.outputs import check_outputs, output_file
from caption.core.runtime.progress import progress_bar

if TYPE_CHECKING:  # torch and Matplotlib take seconds to import, and --help must not wait for them
    from caption.analysis.study import Images

HELP = """\
Measure where models look, and whether that explains their words.

  caption analyse --model runs/mine/best.ckpt --photos in/             your photos: one page with pictures, and JSON
  caption analyse --photos val2017/ --boxes instances_val2017.json \\
      --references captions_val2017.json --limit 200                   with boxes and people's captions: more measures
  caption analyse                                                      the installed models on Shapes, some minutes

On photos: is attention on the objects that the words name (with --boxes), do the words depend on the regions and on
their maps, how concentrated are the maps, do several models agree, who is named (with --references). The page shows the
photos with the best and the worst maps. Without --photos, models that caption Shapes are measured on its test split,
where the truth is known.

Boxes are those of COCO's instances_*.json (polygons and run-length codes count as masks, crowds are left out), or a
JSON object of photos by name: {"a.jpg": {"size": [640, 480], "objects": [{"kind": "person", "names": ["man", "boy"],
"box": [left, top, right, bottom]}]}}. Photos are matched by file name.

With --references the pointing game uses people's captions, by teacher forcing, otherwise the models' own captions.

With --maps the command may be stopped at any moment: the same command continues. Until it is complete, results are in
analysis.partial.npz beside the page.

exit code: 0 all measured; 1 some photos could not be read: they are named on stderr, and the others are measured; 2
wrong usage
"""

MODELS = ("soft=shapes", "hard=shapes-hard")
SCENES = 500
"""Number of scenes in the test split of Shapes."""
INTERVALS = "Brackets are 95 % intervals, by bootstrap over images."


def main(options: argparse.Namespace) -> int:
    """Run `caption analyse`."""
    models, photos, page = _plan(options)

    from caption.analysis.study import study
    from caption.analysis.study.kept import Kept
    from caption.analysis.study.report import report_html
    from caption.analysis.study.run import check_measures
    from caption.models.model_zoo import load
    from caption.visualize import save_html

    check_measures(options.measures or ())
    of_load = of_transformers(options)
    captioners = {
        name: load(model, options.device, options.trust, **of_load) for name, model in models.items()
    }
    readable = _readable(photos)
    with tempfile.TemporaryDirectory() as scenes:
        images, setting = (
            _images(readable, options) if photos else _scenes(Path(scenes), options.limit or SCENES)
        )
        with Kept(page) as kept:
            result = study(captioners, images, options.measures, options.maps, kept)
            save_html(report_html(result, setting), page, opener=replacing_own)
            data = {"written_by": MARK, "setting": setting, **result.to_dict()}
            numbers = page.with_suffix(".json")
            with replacing_own(numbers) as file:
                file.write(f"{json.dumps(data, indent=1)}\n".encode())
    for line in result.text().splitlines():
        print(printable(line))
    say("analyse", f"wrote {page} and {numbers}")
    return DONE if len(readable) == len(photos) else SOME_FAILED


def _plan(options: argparse.Namespace) -> tuple[dict[str, str], list[str], Path]:
    """The models by name, the photos (none = scenes of Shapes), and the page, checked before any work."""
    about_photos = [name for name in ("boxes", "references", "recursive") if getattr(options, name)]
    if about_photos and not options.photos:
        raise UserError(f"--{about_photos[0]} is about photos: name them with --photos")
    if options.split and not options.references:
        raise UserError("--split is about people's captions: name them with --references")
    if not options.photos and options.limit == 1:
        raise UserError("--limit 1: at least 2, since maps are exchanged between scenes")
    if STDIN in options.photos:
        raise UserError("--photos -: photos are read several times here, so they must be files")
    models = _models(options.model or (["photos"] if options.photos else MODELS))
    inputs = input_photos(options.photos, options.recursive)
    for note in inputs.notes:
        say("analyse", note)
    page = output_file(options.out, (".html", ".htm"), "--out")
    if not page.suffix:  # a device
        raise UserError(f"--out {page}: name an .html file; the JSON is written beside it")
    read = [*inputs.photos, *models.values(), *options.boxes, *filter(None, [options.references])]
    check_outputs({"--out": [page, page.with_suffix(".json")]}, read)
    return models, inputs.photos[: options.limit], page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption analyse`."""
    add = parser.add_argument
    help_ = (
        "a checkpoint or an installed model, and its name on the page; may be repeated; default photos, and on Shapes "
        f"{' and '.join(MODELS)}"
    )
    add("--model", action="append", metavar="[NAME=]MODEL", help=help_)
    help_ = "folders, files or quoted patterns; at least two photos"
    add("--photos", nargs="+", default=[], metavar="DIR", help=help_)
    add("--recursive", action="store_true", help="also take the photos in subfolders")
    help_ = "boxes of objects in the photos, see below"
    add("--boxes", nargs="+", default=[], metavar="FILE.json", help=help_)
    help_ = "people's captions of the photos, in any format that caption score reads"
    add("--references", metavar="FILE", help=help_)
    add("--split", metavar="NAME", help="of references that have splits")
    help_ = f"the first N photos; or test scenes, by default all {SCENES}"
    add("--limit", type=count, metavar="N", help=help_)
    help_ = "parts of the page, such as grounding, which are named in its JSON; default all"
    add("--measures", nargs="+", metavar="NAME", help=help_)
    help_ = (
        "maps to weigh against each other, in place of the other measures: methods such as attention gradcam occlusion "
        "shapley chance, or maps of the model such as 'heads[2]'"
    )
    add("--maps", nargs="+", default=[], metavar="NAME", help=help_)
    help_ = "a page; default analysis.html; the JSON beside it has the same name"
    add("--out", metavar="FILE", default="analysis.html", help=help_)
    add_device(parser)
    add_transformers(parser)
    add_trust(parser)


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


def _scenes(folder: Path, limit: int) -> tuple[Images, str]:
    """Scenes of the test split of Shapes, drawn into a folder, and a sentence that describes them."""
    from caption.analysis.study import Images

    images = Images.of_shapes(folder, limit)
    prior = f"the centre prior has σ = {images.sigma:.2f}."
    return images, f"{number_of(limit, 'scene')} of the test split of Shapes; {prior} {INTERVALS}"


def _readable(paths: Sequence[str]) -> list[str]:
    """The photos that can be opened; the others are named on stderr.

    Raises:
        UserError: there are photos, but fewer than two can be opened.
    """
    from caption.data.photos import open_image

    readable = []
    with progress_bar("opening", len(paths), unit="photos") as advance:
        for path in paths:
            try:
                open_image(path)
            except ImageError as error:
                say("analyse", unreadable(path, error))
            else:
                readable.append(path)
            advance(1)
    if paths and len(readable) < 2:
        raise UserError(
            f"--photos and --limit leave {number_of(len(readable), 'photo')}: at least 2 are needed, since maps are "
            "exchanged between them"
        )
    return readable


def _images(photos: list[str], options: argparse.Namespace) -> tuple[Images, str]:
    """The photos with their boxes and captions, and a sentence that describes them."""
    from caption.analysis.study import Images
    from caption.data.photo_boxes import PhotoBoxes, read_photo_boxes
    from caption.metrics.caption_files import captions_of, read_captions

    boxes = read_photo_boxes(options.boxes, photos) if options.boxes else PhotoBoxes([], [], {})
    setting = [number_of(len(photos), "photo")]
    if options.boxes:
        files = first_few(Path(file).name for file in options.boxes)
        setting.append(f"{len(boxes.boxed)} with boxes in {files}")
        if boxes.missing:
            note = f"boxes of {number_of(len(boxes.missing), 'other photo')} left out"
            say("analyse", f"{note}, such as {first_few(boxes.missing)}")
    references: dict[str, list[str]] = {}
    if options.references:
        file = read_captions(options.references, options.split)
        for note in file.notes:
            say("analyse", note)
        references = captions_of(file, photos)
        if not references:
            raise UserError(
                f"{file.name} has captions of {first_few(file.captions)}, but of none of these photos, such as "
                f"{Path(photos[0]).name}: give the captions of these photos"
            )
        setting.append(f"{len(references)} with people's captions in {Path(options.references).name}")
    images = Images(photos, boxes.boxed, references, boxes.words)
    return images, f"{', '.join(setting)}. {INTERVALS}"
