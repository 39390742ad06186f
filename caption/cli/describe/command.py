"""`caption describe`: from photos to captions and heatmaps."""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import add_trust, verb_parser
from caption.cli.describe.photos import Inputs, StdinPhoto, input_photos, is_pattern
from caption.cli.describe.pictures import Pictures, add_options
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.errors import ImageError, UserError, printable
from caption.lens_reading import UNLIKE
from caption.runtime.files import replacing_own
from caption.runtime.inputs import PHOTO, open_input
from caption.runtime.outputs import check_outputs, output_paths
from caption.runtime.progress import progress_bar
from caption.runtime.signals import uninterrupted

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.attention.stochastic import AtTest
    from caption.captioner import Captioner
    from caption.result import Caption

DESCRIPTION = """\
Caption photos. Each caption is printed to stdout as soon as it is found; photos that cannot be read are listed on
stderr.
"""
EPILOG = "exit code: 0 all photos captioned; 1 some photos could not be read, the others are captioned; 2 wrong usage"
EMPTY = "(no words)"
"""The text format's line for a model that ends the caption at once; the other formats have an empty string."""
SCENE_MODELS = ("shapes", "shapes-hard")
"""Installed models that know nothing but the scenes of the Shapes dataset."""
LARGEST_SCENE = 128
"""Pixels; the scenes are square and smaller."""
SEARCH_OPTIONS = ("beam_size", "length_normalization", "candidates")


def main(args: list[str]) -> int:
    """Run `caption describe`; EPILOG tells the exit codes."""
    if "--engine" in args:
        from caption.cli.describe import ray

        return ray.main(args)
    options = make_parser().parse_args(args)
    inputs = input_photos(options.images, options.recursive)
    for note in inputs.notes:
        print(f"caption describe: {note}", file=sys.stderr)
    # Looking for garbage takes a fifth of the time in which torch is imported. One photo leaves little of it.
    with no_garbage_collection() if len(inputs.photos) == 1 else nullcontext():
        return _describe(options, inputs)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause Python's collection of garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _describe(options: argparse.Namespace, inputs: Inputs) -> int:
    photos = inputs.photos
    # Before any work, so that wrong usage is reported at once.
    models = _chosen_models(options.model)
    options.model = " + ".join(models)
    compared = [options.compare] if options.compare else []
    pictures = Pictures(options, photos, [*models, *compared])
    attentions = options.attention and output_paths(options.attention, photos, (".npz",), "--attention")
    arrays = {"--attention": attentions} if attentions else {}
    check_outputs({**pictures.outputs, **arrays}, [*photos, *models, *compared])
    captioner = _load_models(models, options.device, options.trust)
    warning = _scene_model_warning([*models, *compared], photos)
    if warning is not None:
        print(f"caption describe: {printable(warning)}", file=sys.stderr)
    _add_lens(captioner, models[0], options.lens)
    if options.at_test:
        _choose_at_test(captioner, options.at_test)
    if compared:
        pictures.second = _load_models(compared, options.device, options.trust)
    from caption.search import adjusted

    changes = {name: getattr(options, name) for name in SEARCH_OPTIONS}
    search = adjusted(captioner.search, **changes)
    stream = captioner.describe_each(inputs.sources, search, beam_tree=pictures.page is not None)
    failed = 0
    with progress_bar("captioning", len(photos), unit="photos") as advance:
        printer = Printer(options.format, options.model, several=len(photos) > 1)
        try:
            for index, caption in enumerate(stream):
                with uninterrupted():
                    if isinstance(caption, ImageError):
                        failed += 1
                        print(f"caption describe: {_reason(inputs.sources[index], caption)}", file=sys.stderr)
                    else:
                        for remark in remarks(caption):
                            print(f"caption describe: {printable(photos[index])}: {remark}", file=sys.stderr)
                        if not options.lens:
                            caption.lens = None
                        printer.add(photos[index], caption)
                        if attentions:
                            caption.save_attention(attentions[index], replacing_own)
                        if (reason := pictures.add(index, caption)) is not None:
                            failed += 1
                            print(f"caption describe: {reason}", file=sys.stderr)
                    advance(1)
        finally:  # also after a signal or an error: what is done is kept
            with uninterrupted():
                try:
                    printer.finish()
                finally:
                    pictures.finish()
    return SOME_FAILED if failed else DONE


def make_parser() -> argparse.ArgumentParser:
    parser = verb_parser("describe", DESCRIPTION, EPILOG)
    add, formats = parser.add_argument, ("text", "json", "jsonl", "csv", "coco")
    help_ = "photos in any format that Pillow reads, folders of photos, patterns ('in/*.jpg'), - for standard input"
    add("images", nargs="+", metavar="IMAGE", help=help_)
    add("--recursive", action="store_true", help="take the photos of subfolders, too")
    help_ = (
        "a checkpoint, or the name of an installed model; several are averaged; default: the one for photos"
    )
    add("--model", action="append", metavar="CKPT|NAME", help=help_)
    add_trust(parser)
    help_ = "hypotheses of the beam search, 1 = greedy; default: the model's"
    add("--beam-size", type=int, metavar="K", help=help_)
    help_ = "exponent of the length by which log p is divided, 0 = none; default: the model's"
    add("--length-normalization", type=float, metavar="A", help=help_)
    choices = ("expectation", "argmax", "sample")
    add("--at-test", choices=choices, help="what hard attention reads at each word; default: the model's")
    help_ = "what the encoder sees where the model looked for each word; words for which it is sure of another thing"
    add("--lens", action="store_true", help=help_)
    help_ = "captions of each photo, best first; widens the beam where it is smaller; default 1"
    add("--candidates", type=int, metavar="N", help=help_)
    add("--device", default="cpu", metavar="D", help="cpu, cuda, cuda:1, mps; default cpu")
    add("--format", choices=formats, default="text", help="format of stdout; default text")
    add_options(parser)
    add("--attention", metavar="FILE.npz|DIR", help="arrays: words, weights (T, rows, cols), gates, box")
    help_ = "caption any number of photos on a Ray cluster; has options of its own, see --engine ray --help"
    add("--engine", choices=("ray",), help=help_)
    return parser


def _chosen_models(named: Sequence[str] | None) -> list[str]:
    """The models to use. Without any given, the installed model for photos, which a terminal is told.

    Raises:
        UserError: no model is given, and none for photos is installed.
    """
    if named:
        return list(named)
    from caption.models.model_zoo import PHOTO_MODEL, installed_models

    if PHOTO_MODEL not in installed_models():
        raise UserError(
            "name a model with --model: a checkpoint, or an installed model "
            f"({', '.join(installed_models()) or 'none is installed'})"
        )
    if sys.stderr.isatty():  # not in scripts and logs
        print(
            f"caption describe: uses the installed model {PHOTO_MODEL}, a small model, trained on 6,000 photos: expect "
            "mistakes; --model takes another",
            file=sys.stderr,
        )
    return [PHOTO_MODEL]


def _load_models(models: Sequence[str], device: str, trust: Sequence[str]) -> Captioner:
    """One captioner: the model, or the ensemble of several."""
    from caption.models.model_zoo import load

    captioners = [load(model, device, trust) for model in models]
    if len(captioners) == 1:
        return captioners[0]
    from caption.models.ensemble import ensemble

    return ensemble(captioners)


def _add_lens(captioner: Captioner, model: str, wanted: bool) -> None:
    """Read what the encoder sees. A lens that lies beside a model also tells photos unlike those that it knows.

    Raises:
        UserError: a lens is wanted, and the encoder has no classifier.
    """
    from caption.models.model_zoo import lens_path

    path = lens_path(model)
    if not wanted and not path.is_file():
        return
    from caption.analysis.lens.file import load_lens
    from caption.analysis.lens.naming import lens_postprocessors

    lens = load_lens(captioner, path)
    if lens.calibration is None:
        print(
            f"caption describe: the lens of {printable(model)} is not calibrated, and is often too sure; caption lens "
            f"writes a calibrated one, {printable(str(path))}",
            file=sys.stderr,
        )
    captioner.postprocessors = lens_postprocessors(captioner, lens)


def remarks(caption: Caption) -> list[str]:
    """What the lens has against a caption and has changed in it, in short sentences."""
    reading = caption.lens
    if reading is None:
        return []
    named = [f"names {', '.join(caption.named)}, which is seen; was: {caption.replaced}"] * bool(
        caption.named
    )
    return [UNLIKE] * bool(reading.unlike) + named + [str(doubt) for doubt in reading.doubts]


def _scene_model_warning(models: Sequence[str], photos: Sequence[str]) -> str | None:
    """A warning if an installed model of drawn scenes is to caption a photo, else None."""
    from PIL import Image

    scene_model = next(
        (model for model in models if model in SCENE_MODELS and not Path(model).is_file()), None
    )
    for photo in photos if scene_model else ():
        try:
            with open_input(photo, PHOTO) as file, Image.open(file) as image:
                width, height = image.size
        except Exception:  # reported when it is its turn
            continue
        if width != height or width > LARGEST_SCENE:
            return (
                f"{scene_model} knows drawn scenes of coloured shapes and nothing else, and {photo} is not one: its "
                "caption will be wrong. Give a model of photos"
            )
    return None


def _reason(photo: str | StdinPhoto, error: ImageError) -> str:
    """The message of an error. A folder among the photos is one in which there are no images."""
    if isinstance(photo, StdinPhoto):
        if photo.is_text():
            return "standard input is text, and not a photo. To give a list of names: ... | xargs caption describe"
        return printable(error)
    if os.path.isdir(photo):
        return f"'{printable(photo)}' is a folder without images. Name one with images; --recursive reads subfolders."
    if is_pattern(photo):
        return f"no file matches '{printable(photo)}'. Check the pattern."
    return printable(error)


def _choose_at_test(captioner: Captioner, how: AtTest) -> None:
    from caption.attention.stochastic import stochastic_parts

    hard = stochastic_parts(captioner)
    if not hard:
        raise UserError("--at-test is for hard attention, and this model has soft attention: leave it out")
    for part in hard:
        part.at_test = how


class Printer:
    """Prints captions to stdout one at a time, and keeps none.

    Args:
        form: text, json, jsonl, csv or coco.
        model: the model as the user named it.
        several: whether lines of text begin with the name of the photo.
    """

    def __init__(self, form: str, model: str, several: bool) -> None:
        self.form, self.model, self.several = form, model, several
        self.separator = "[\n"
        columns = ("image", "text", "log_prob", "finished")
        self.table = csv.DictWriter(sys.stdout, columns, extrasaction="ignore", lineterminator="\n")
        if form == "csv":
            self.table.writeheader()

    def add(self, photo: str, caption: Caption) -> None:
        """Print one caption; in text and CSV also its alternatives, one line each."""
        candidates = (caption, *caption.alternatives)
        entry = {"image": photo, "model": self.model, **caption.to_dict()}
        if self.form == "text":
            for candidate in candidates:
                sentence = (str(candidate) or EMPTY) + _seen(candidate)
                print(f"{printable(photo)}\t{sentence}" if self.several else sentence)
        elif self.form == "csv":
            self.table.writerows({"image": photo, **candidate.to_dict()} for candidate in candidates)
        elif self.form == "jsonl":
            print(json.dumps(entry))
        else:
            if self.form == "coco":
                entry = {"image_id": coco_id(photo), "caption": caption.text}
            print(self.separator, json.dumps([entry], indent=1)[2:-2], sep="", end="")
            self.separator = ",\n"
        sys.stdout.flush()

    def finish(self) -> None:
        """Print the end of a document. Call it once, also after an error."""
        if self.form in ("json", "coco"):
            print("[]" if self.separator == "[\n" else "\n]")


def _seen(caption: Caption) -> str:
    """What the lens sees at the words that name things, behind a tab; "" without a lens."""
    if caption.lens is None:
        return ""
    from caption.visualize.words import seen_at_words

    things = [f"{word}: {seen}" for word, seen in seen_at_words(caption)]
    return f"\tsees {', '.join(things) or 'nothing that it knows'}"


def coco_id(photo: str) -> int | str:
    """The image id for COCO's tools: 42 for COCO_val2014_000000000042.jpg, otherwise the name without suffix."""
    stem = Path(photo).stem
    number = re.fullmatch(r"(?:COCO_\w+_)?(\d+)", stem)
    return int(number[1]) if number else stem
