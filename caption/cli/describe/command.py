"""`caption describe`: caption photos, with a heatmap for every word."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import (
    add_device,
    add_transformers,
    add_trust,
    count,
    of_transformers,
)
from caption.cli.describe import ray
from caption.cli.describe.inputs import (
    Inputs,
    chosen_models,
    input_photos,
    scene_model_warning,
    unreadable,
)
from caption.cli.describe.outputs import Outputs, add_options
from caption.cli.describe.printer import FORMATS, Printer
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import say
from caption.core.errors import ImageError, UserError, first_few
from caption.core.runtime.progress import progress_bar
from caption.core.runtime.signals import uninterrupted
from caption.data.text_files import coco_id

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.attention.stochastic import AtTest
    from caption.captioner import Captioner
    from caption.results.caption import Caption
    from caption.search import Search

HELP = """\
Caption photos. Each caption is printed to stdout as soon as it is found; photos that cannot be read are listed on
stderr.

exit code: 0 all photos captioned; 1 some photos could not be read, the others are captioned; 2 wrong usage
"""


def main(options: argparse.Namespace) -> int:
    """Run `caption describe`: everything is checked before the models are loaded.

    Raises:
        UserError: options do not fit together, an output cannot be written, or would replace an input or a file of the
            user.
    """
    if options.engine:
        return ray.describe_on_ray(options)
    for name in ("list", "out", "per_file", "actors"):
        if name in options.given:
            raise UserError(f"{options.given[name]} is for --engine ray")
    if options.format not in (None, *FORMATS):
        raise UserError(f"--format {options.format} is for --engine ray")
    if not options.images:
        raise UserError(
            "there are no photos: name files or folders (caption describe --help lists the options)"
        )
    inputs = input_photos(options.images, options.recursive)
    if options.format == "coco":
        _check_coco_ids(inputs.photos)
    models = chosen_models(options.model)
    shown = [" + ".join(models), *options.compare]
    if twice := [name for name in options.compare if shown.count(name) > 1]:
        raise UserError(f"--compare names {twice[0]}, which is shown already: name another model")
    outputs = Outputs(options, inputs.photos, read=[*inputs.photos, *models, *options.compare])
    # Collecting garbage takes a fifth of the time of importing torch, and one photo leaves little garbage.
    with no_garbage_collection() if len(inputs.photos) == 1 else nullcontext():
        return _describe(options, inputs, models, outputs)


def _check_coco_ids(photos: Sequence[str]) -> None:
    """Check that no two photos would have the same id in COCO's format, which has no names."""
    by_id: dict[int | str, str] = {}
    for photo in photos:
        first = by_id.setdefault(coco_id(photo), photo)
        if first != photo:
            raise UserError(
                f"--format coco: {first} and {photo} would both have the image_id {coco_id(photo)}: caption them in "
                "two commands, or take another format"
            )


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
    help_ = "what the encoder sees where the model looked for each word, and words that it contradicts"
    add("--lens", action="store_true", help=help_)
    help_ = "captions of each photo, best first; widens the beam if it is smaller; default 1"
    add("--candidates", type=int, metavar="N", help=help_)
    add_device(parser)
    add_transformers(parser)
    help_ = "of stdout, default text; parquet is for --engine ray"
    add("--format", choices=(*FORMATS, "parquet"), help=help_)
    add_options(parser)
    on_ray = parser.add_argument_group("any number of photos, on a Ray cluster", ray.HELP).add_argument
    help_ = "use the cluster that RAY_ADDRESS names, or processes of this machine"
    on_ray("--engine", choices=("ray",), help=help_)
    on_ray("--out", metavar="DIR|URL", help="folder of the results; created, or continued")
    on_ray("--list", metavar="FILE", help="a text file with a photo, folder or URL in each line")
    help_ = "photos in a file of results; default 1000"
    on_ray("--per-file", type=count, default=1000, metavar="N", help=help_)
    on_ray("--actors", type=count, metavar="N", help="captioners; default: one for each processor or GPU")


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause Python's garbage collection."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _describe(options: argparse.Namespace, inputs: Inputs, models: Sequence[str], outputs: Outputs) -> int:
    """Load the models, caption the photos, and write what is asked for, photo by photo."""
    for note in inputs.notes:
        say("describe", note)
    captioner = _load_models(models, options)
    if (warning := scene_model_warning([*models, *options.compare], inputs.photos)) is not None:
        say("describe", warning)
    _add_lens(captioner, models[0], options.lens)
    from caption.search import adjusted

    model = " + ".join(models)
    captioners = {model: captioner, **{name: _load_models([name], options) for name in options.compare}}
    if options.at_test:
        _choose_at_test(captioners, options.at_test)
    if options.map:
        _check_map(options.map, captioners)
    of_search = options.beam_size, options.candidates, options.length_normalization
    searches = {name: adjusted(each.search, *of_search) for name, each in captioners.items()}
    stream = captioner.describe_each(inputs.sources, searches[model], beam_tree=outputs.page is not None)
    failed = 0
    with progress_bar("captioning", len(inputs.photos), unit="photos") as advance:
        printer = Printer(options.format or FORMATS[0], model, several=len(inputs.photos) > 1)
        try:
            for index, (photo, caption) in enumerate(zip(inputs.photos, stream, strict=True)):
                with uninterrupted():
                    if isinstance(caption, ImageError):
                        failed += 1
                        say("describe", unreadable(inputs.sources[index], caption))
                        advance(1)
                    else:
                        for remark in caption.remarks:
                            say("describe", f"{photo}: {remark}")
                        lens = caption.lens
                        if lens is not None and not options.lens:
                            caption.lens = lens.with_remarks_alone()
                        # Before anything is printed: a map may be refused.
                        captions = _captions(caption, captioners, searches, outputs, options.map)
                        printed = caption if options.lens else replace(caption, lens=None)
                        printer.add(photo, printed, None if lens is None else lens.out_of_distribution)
                        advance(1)  # before the pictures, which take longer than the caption
                        questions = (
                            _questions(caption, captioners) if options.question and outputs.page else {}
                        )
                        reason = outputs.add(index, captions, questions)
                        if reason is not None:
                            failed += 1
                            say("describe", reason)
        finally:  # also after a signal or an error: captions so far are kept
            with uninterrupted():
                try:
                    printer.finish()
                finally:
                    outputs.finish()
    if outputs.written and sys.stderr.isatty():  # not in scripts and logs
        say("describe", f"wrote {first_few(outputs.written)}")
    return SOME_FAILED if failed else DONE


def _captions(
    caption: Caption,
    captioners: Mapping[str, Captioner],
    searches: Mapping[str, Search],
    outputs: Outputs,
    map_: str | None,
) -> dict[str, Caption]:
    """The captions of a photo by the names of the models; `caption` is that of the first. They have the self-attention
    of their words if an output shows it, and the weights of the method `map_`."""
    assert caption.image is not None
    captions: dict[str, Caption] = {}
    for name, captioner in captioners.items():
        beam_tree = outputs.page is not None
        of_model = (
            captioner.describe(caption.image, searches[name], beam_tree=beam_tree) if captions else caption
        )
        if outputs.matrices or outputs.page:
            from caption.analysis.self_attention import has_word_maps, word_maps

            if has_word_maps(captioner):
                (of_model,) = word_maps(captioner, caption.image, [of_model])
        if map_:
            from caption.analysis.maps import maps

            of_model = maps(captioner, caption.image, [of_model], map_)
        captions[name] = of_model
    return captions


def _questions(caption: Caption, captioners: Mapping[str, Captioner]) -> dict[str, Caption]:
    """The question to each model, with the maps of its words in the photo of a caption."""
    from caption.models.transformers.captioner import ForeignCaptioner

    assert caption.image is not None
    return {
        f"{name}: the question": captioner.question(caption.image)
        for name, captioner in captioners.items()
        if isinstance(captioner, ForeignCaptioner) and captioner.decoder.model.asks_decoder
    }


def _check_map(name: str, captioners: Mapping[str, Captioner]) -> None:
    """Check that there is such a map for each model and a single photo, and say what it does with hard attention."""
    from caption.analysis.maps import method_named
    from caption.attention.stochastic import stochastic_parts

    for model, captioner in captioners.items():
        method = method_named(name, captioner)
        if method.several:
            raise UserError(
                f"--map {name} compares photos: take caption analyse --maps {name}, or caption.maps with a list of "
                "photos"
            )
        if method.replays and stochastic_parts(captioner):
            say(
                "describe",
                f"--map {name}: the hard attention of {model} reads its expectation here, Σ α_i a_i",
            )


def _load_models(models: Sequence[str], options: argparse.Namespace) -> Captioner:
    """One captioner: the model, or the ensemble of several."""
    from caption.models.model_zoo import load

    of_load = of_transformers(options)
    captioners = [load(model, options.device, options.trust, **of_load) for model in models]
    if len(captioners) == 1:
        return captioners[0]
    from caption.models.ensemble import ensemble

    return ensemble(captioners)


def _add_lens(captioner: Captioner, model: str, wanted: bool) -> None:
    """Attach the lens, which reads what the encoder sees. A lens file beside the model also recognises photos that are
    unlike the training photos.

    Raises:
        UserError: a lens is wanted, but the encoder has no classifier.
    """
    from caption.analysis.lens.file import attach_lens, lens_path

    path = lens_path(model)
    if not wanted and not path.is_file():
        return
    lens = attach_lens(captioner, path)
    if lens.calibration is None:
        note = f"the lens of {model} is not calibrated, and is often too sure"
        say("describe", f"{note}; caption lens writes a calibrated one, {path}")


def _choose_at_test(captioners: Mapping[str, Captioner], how: AtTest) -> None:
    from caption.attention.stochastic import stochastic_parts

    hard = [part for captioner in captioners.values() for part in stochastic_parts(captioner)]
    if not hard:
        raise UserError(
            f"--at-test is for hard attention, and {' and '.join(captioners)} has soft attention: leave it out"
        )
    for part in hard:
        part.at_test = how
