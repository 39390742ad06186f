"""`caption describe --engine ray`: any number of photos, on a Ray cluster."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from caption.cli.describe.inputs import chosen_models, image_suffixes
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import say
from caption.core.errors import UserError, number_of, optional_package
from caption.core.runtime.progress import progress_bar

HELP = """\
With --engine ray, results are files of --per-file photos each in the folder --out, as jsonl or parquet. Photos may
be URLs in a bucket (s3://..., gs://...); folders are taken with their subfolders. If the command is stopped, the same
command continues.
"""
FORMATS = ("jsonl", "parquet")
SEARCH = ("beam_size", "length_normalization")
SUPPORTED = {
    "engine", "images", "list", "model", "trust", "out", "format", "per_file", "actors", "device", *SEARCH,
}  # fmt: skip
"""Options of `caption describe` that work with --engine ray."""


def describe_on_ray(options: argparse.Namespace) -> int:
    """Caption the photos of the options; see `caption.cli.describe.command`."""
    from caption.models.on_ray import RAY, Job, caption_photos

    for name in options.given.keys() - SUPPORTED:
        raise UserError(f"{options.given[name]} is not for --engine ray")
    model, *more_models = chosen_models(options.model)
    if not options.out or more_models:
        raise UserError("--engine ray needs a folder for the results, --out, and takes one --model")
    form: Any = options.format or FORMATS[0]
    if form not in FORMATS or options.device not in ("auto", "cpu", "cuda"):
        raise UserError("--engine ray writes --format jsonl or parquet, and runs on --device cpu or cuda")
    with optional_package(*RAY):
        import pyarrow  # noqa: F401
    model = os.path.abspath(model) if os.path.isfile(model) else model
    search = {name: getattr(options, name) for name in SEARCH if name in options.given}
    job = Job(model, options.out, form, search or None, options.device, tuple(options.trust))
    photos = _photos(options.images, options.list)
    captioned = failed = files = 0
    with progress_bar("captioning", len(photos), unit="photos") as advance:
        for progress in caption_photos(photos, job, options.actors, options.per_file):
            captioned, failed = captioned + progress.photos, failed + progress.failed
            files += progress.pieces
            advance(progress.photos)
    written = f"{number_of(captioned, 'photo')} in {number_of(files, 'file')} in '{options.out}'"
    say("describe", f"{written}; {failed:,} could not be read")
    return SOME_FAILED if failed else DONE


def _photos(images: Sequence[str], list_: str | None) -> list[str]:
    """The photos of the arguments and the list. Paths are made absolute, because actors run in other folders."""
    from caption.data.text_files import numbered_lines, read_text
    from caption.models.on_ray import list_photos

    listed = [line.strip() for _, line in numbered_lines(read_text(list_))] if list_ else []
    photos: list[str] = []
    for name in (*images, *listed):
        place = name if "://" in name else os.path.abspath(os.path.expanduser(name))
        is_image = os.path.splitext(name)[1].lower() in image_suffixes()
        if os.path.isdir(place) or ("://" in place and not is_image):
            photos += list_photos(place, image_suffixes())
        else:
            photos.append(place)
    if not photos:
        raise UserError(
            "there are no photos to caption: give photos, folders, URLs of folders in a bucket, or --list"
        )
    return photos
