"""`caption analyse` on the user's photos: a page with pictures, and the same numbers as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.errors import ImageError, UserError, first_few, printable
from caption.runtime.files import MARK, replacing_own, seal
from caption.runtime.outputs import check_outputs, output_file
from caption.runtime.progress import progress_bar

if TYPE_CHECKING:  # torch and Matplotlib take seconds to import, and --help must not wait for them
    from caption.analysis.agreement import Agreement
    from caption.analysis.photos.report import Given, Part
    from caption.analysis.photos.study import PhotoSet, PhotoStudy


def analyse_photos(options: argparse.Namespace) -> int:
    """`caption analyse --photos`."""
    from caption.cli.describe.photos import STDIN, input_photos

    if STDIN in options.photos:
        raise UserError("--photos -: photos are read several times here, so they must be files")
    found = input_photos(options.photos, options.recursive)
    for note in found.notes:
        _say(note)
    page = output_file(options.out or "analysis.html", (".html", ".htm"), "--out")
    if not page.suffix:  # a device
        raise UserError(f"--out {page}: name an .html file; the JSON is written beside it")
    numbers = page.with_suffix(".json")
    inputs = [*found.photos, *options.models.values(), *options.boxes, *filter(None, [options.references])]
    check_outputs({"--out": [page, numbers]}, inputs)

    photos = _readable(found.photos[: options.limit])
    images, given, setting = _images(photos, options)
    studies = _studies(images, options)
    parts = _parts(studies, images, given)
    _write(page, numbers, setting, studies, images, parts)
    for part in parts:
        for finding in part.findings:
            print(printable(finding))
    _say(f"wrote {page} and {numbers}")
    return DONE if len(photos) == len(found.photos[: options.limit]) else SOME_FAILED


def _readable(paths: Sequence[str]) -> list[str]:
    """The photos that can be opened; the others are named on stderr.

    Raises:
        UserError: fewer than two photos are left.
    """
    from caption.data.decoding import open_image

    readable = []
    with progress_bar("opening", len(paths), unit="photos") as advance:
        for path in paths:
            try:
                open_image(path)
            except ImageError as error:
                _say(str(error))
            else:
                readable.append(path)
            advance(1)
    if len(readable) < 2:
        raise UserError(
            f"--photos and --limit leave {len(readable)} photos: at least 2 are needed, since maps are exchanged "
            "between them"
        )
    return readable


def _images(photos: list[str], options: argparse.Namespace) -> tuple[PhotoSet, Given, str]:
    """The photos with their boxes and captions, and what they are, in a sentence."""
    from caption.analysis.photos.report import Given
    from caption.analysis.photos.study import PhotoSet
    from caption.data.photo_boxes import PhotoBoxes, read_photo_boxes
    from caption.metrics.caption_files import captions_of, read_captions

    boxes = read_photo_boxes(options.boxes, photos) if options.boxes else PhotoBoxes([], [], {})
    setting = [f"{len(photos)} photos"]
    if options.boxes:
        setting.append(f"{len(boxes.boxed)} with boxes in {_names(options.boxes)}")
        if boxes.missing:
            _say(
                f"boxes of {len(boxes.missing)} other photos are left out, such as {first_few(boxes.missing)}"
            )
    references: dict[str, list[str]] = {}
    if options.references:
        file = read_captions(options.references, options.split)
        references = captions_of(file, photos)
        if not references:
            raise UserError(
                f"{file.name} has captions of {first_few(file.captions)}, and of none of these photos, such as "
                f"{Path(photos[0]).name}: give the captions of these photos"
            )
        setting.append(f"{len(references)} with people's captions in {_names([options.references])}")
    images = PhotoSet(photos, boxes.boxed, references)
    if options.boxes and not images.pointed_at:
        raise UserError("no photo has both boxes and people's captions: give those of the same photos")
    given = Given(bool(options.boxes), bool(options.references), boxes.words)
    return images, given, f"{', '.join(setting)}. Brackets are 95 % intervals, by bootstrap over photos."


def _names(files: Sequence[str]) -> str:
    return first_few(Path(file).name for file in files)


def _studies(images: PhotoSet, options: argparse.Namespace) -> list[PhotoStudy]:
    from functools import partial

    from caption.analysis.photos.study import study_photos
    from caption.models.model_zoo import load

    captioners = {name: load(model, options.device, options.trust) for name, model in options.models.items()}
    progress = partial(progress_bar, unit="photos")
    return [
        study_photos(name, captioner, images, progress=progress) for name, captioner in captioners.items()
    ]


def _parts(studies: Sequence[PhotoStudy], images: PhotoSet, given: Given) -> list[Part]:
    from functools import partial

    from caption.analysis.photos.report import NEED_MODELS, make_parts
    from caption.analysis.photos.study import agreements

    agreement: dict[tuple[str, str], Agreement] | str = NEED_MODELS
    if len(studies) > 1:
        try:
            agreement = agreements(studies, images.photos, partial(progress_bar, unit="photos"))
        except UserError as error:
            agreement = f"{error}."
    return make_parts(studies, agreement, given)


def _write(
    page: Path,
    numbers: Path,
    setting: str,
    studies: Sequence[PhotoStudy],
    images: PhotoSet,
    parts: Sequence[Part],
) -> None:
    from caption.analysis.photos.examples import examples
    from caption.visualize import save_html
    from caption.visualize.report import report_html

    names = [study.name for study in studies]
    what = f"the model {names[0]} looks" if len(names) == 1 else f"{', '.join(names)} look"
    title = f"Where {what}, and whether that is why"
    shown = {study.name: examples(study) for study in studies}
    curves = {study.name: study.curves for study in studies}
    save_html(report_html(title, setting, parts, shown, curves), page, opener=replacing_own)
    data: dict[str, Any] = {
        "written_by": MARK,
        "setting": setting,
        "models": names,
        **{part.name: part.to_dict() for part in parts},
        "captions": {
            study.name: {
                photo: caption.text for photo, caption in zip(images.photos, study.captions, strict=True)
            }
            for study in studies
        },
    }
    with replacing_own(numbers) as file:
        file.write(f"{json.dumps(data, indent=1)}\n".encode())
        seal(file)


def _say(message: str) -> None:
    print(f"caption analyse: {printable(message)}", file=sys.stderr, flush=True)
