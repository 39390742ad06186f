"""Caption photos. Each caption is printed to stdout as soon as it is found; photos that cannot be read are listed on
stderr.

exit code: 0 all photos captioned; 1 some photos could not be read, the others are captioned; 2 wrong usage
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import add_device, add_trust, count
from caption.cli.describe import ray
from caption.cli.describe.drawing import Pictures
from caption.cli.describe.photos import StdinPhoto, is_pattern
from caption.cli.describe.pictures import add_options
from caption.cli.describe.plan import FORMATS, Plan, make_plan
from caption.cli.describe.printer import Printer, remarks
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import say
from caption.core.errors import ImageError, UserError, first_few
from caption.core.runtime.files import replacing_own
from caption.core.runtime.inputs import PHOTO, open_input
from caption.core.runtime.progress import progress_bar
from caption.core.runtime.signals import uninterrupted

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.attention.stochastic import AtTest
    from caption.captioner import Captioner

SCENE_MODELS = ("shapes", "shapes-hard")
"""Installed models that know nothing but the scenes of the Shapes dataset."""
LARGEST_SCENE = 128
"""Pixels; the scenes are square and smaller."""


def main(options: argparse.Namespace) -> int:
    """Run `caption describe`."""
    if options.engine:
        return ray.describe_on_ray(options)
    plan = make_plan(options)
    # Looking for garbage takes a fifth of the time in which torch is imported. One photo leaves little of it.
    with no_garbage_collection() if len(plan.inputs.photos) == 1 else nullcontext():
        return _describe(plan)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption describe`."""
    add = parser.add_argument
    help_ = "photos in any format that Pillow reads, folders of photos, patterns ('in/*.jpg'), - for standard input"
    add("images", nargs="*", metavar="IMAGE", help=help_)
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
    add_device(parser)
    help_ = "of stdout, default text; parquet is for --engine ray"
    add("--format", choices=(*FORMATS, "parquet"), help=help_)
    add_options(parser)
    add("--attention", metavar="FILE.npz|DIR", help="arrays: words, weights (T, rows, cols), gates, box")
    on_ray = parser.add_argument_group("any number of photos, on a Ray cluster", ray.__doc__).add_argument
    help_ = "use the cluster that RAY_ADDRESS names, or processes of this machine"
    on_ray("--engine", choices=("ray",), help=help_)
    on_ray("--out", metavar="DIR|URL", help="folder of the results; made, or continued")
    on_ray("--list", metavar="FILE", help="a text file with a photo, folder or URL in each line")
    help_ = "photos in a file of results; default 1000"
    on_ray("--per-file", type=count, default=1000, metavar="N", help=help_)
    on_ray("--actors", type=count, metavar="N", help="captioners; default: one for each processor or GPU")


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


def _describe(plan: Plan) -> int:
    """Load the models, caption the photos, and write what is asked for, photo by photo."""
    photos = plan.inputs.photos
    options = plan.options
    for note in plan.inputs.notes:
        say("describe", note)
    captioner = _load_models(plan.models, options)
    if (warning := _scene_model_warning([*plan.models, *options.compare], photos)) is not None:
        say("describe", warning)
    _add_lens(captioner, plan.models[0], options.lens)
    if options.at_test:
        _choose_at_test(captioner, options.at_test)
    from caption.search import adjusted

    others = {name: _load_models([name], options) for name in options.compare}
    pictures = Pictures(plan, {plan.model: captioner, **others})
    search = adjusted(captioner.search, options.beam_size, options.candidates, options.length_normalization)
    stream = captioner.describe_each(plan.inputs.sources, search, beam_tree=plan.pictures.page is not None)
    failed = 0
    with progress_bar("captioning", len(photos), unit="photos") as advance:
        printer = Printer(options.format or FORMATS[0], plan.model, several=len(photos) > 1)
        try:
            for index, caption in enumerate(stream):
                with uninterrupted():
                    if isinstance(caption, ImageError):
                        failed += 1
                        say("describe", _reason(plan.inputs.sources[index], caption))
                        advance(1)
                    else:
                        for remark in remarks(caption):
                            say("describe", f"{photos[index]}: {remark}")
                        unlike = None if caption.lens is None else caption.lens.out_of_distribution
                        if not options.lens:
                            caption.lens = None
                        printer.add(photos[index], caption, unlike)
                        advance(1)  # pictures take longer than the caption, which stands above the bar
                        if plan.attention:
                            caption.save_attention(plan.attention[index], replacing_own)
                            pictures.written.append(plan.attention[index])
                        if (reason := pictures.add(index, caption)) is not None:
                            failed += 1
                            say("describe", reason)
        finally:  # also after a signal or an error: what is done is kept
            with uninterrupted():
                try:
                    printer.finish()
                finally:
                    pictures.finish()
    if pictures.written and sys.stderr.isatty():  # not in scripts and logs
        say("describe", f"wrote {first_few(pictures.written)}")
    return SOME_FAILED if failed else DONE


def _load_models(models: Sequence[str], options: argparse.Namespace) -> Captioner:
    """One captioner: the model, or the ensemble of several."""
    from caption.models.model_zoo import load

    captioners = [load(model, options.device, options.trust) for model in models]
    if len(captioners) == 1:
        return captioners[0]
    from caption.models.ensemble import ensemble

    return ensemble(captioners)


def _add_lens(captioner: Captioner, model: str, wanted: bool) -> None:
    """Read what the encoder sees. A lens that lies beside a model also tells photos unlike the training photos.

    Raises:
        UserError: a lens is wanted, and the encoder has no classifier.
    """
    from caption.analysis.lens.file import attach_lens, lens_path

    path = lens_path(model)
    if not wanted and not path.is_file():
        return
    lens = attach_lens(captioner, path)
    if lens.calibration is None:
        sure = f"the lens of {model} is not calibrated, and is often too sure"
        say("describe", f"{sure}; caption lens writes a calibrated one, {path}")


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
        return str(error)
    if os.path.isdir(photo):
        return f"'{photo}' is a folder without images. Name one with images; --recursive reads subfolders."
    if is_pattern(photo):
        return f"no file matches '{photo}'. Check the pattern."
    return str(error)


def _choose_at_test(captioner: Captioner, how: AtTest) -> None:
    from caption.attention.stochastic import stochastic_parts

    hard = stochastic_parts(captioner)
    if not hard:
        raise UserError("--at-test is for hard attention, and this model has soft attention: leave it out")
    for part in hard:
        part.at_test = how
