"""`caption describe --engine ray`: caption any number of photos on a Ray cluster."""

from __future__ import annotations

import argparse
import os
import sys

from caption.cli.configuration.arguments import add_trust, count, verb_parser
from caption.cli.describe.photos import image_suffixes
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.data.files import numbered_lines, read_text
from caption.errors import UserError
from caption.runtime.progress import progress_bar

DESCRIPTION = """\
Caption photos on the Ray cluster that RAY_ADDRESS names, or with several processes on this machine. The results are
files of --per-file photos each in the folder --out. Given again, the command continues where it was stopped.
"""
EPILOG = (
    "exit code: 0 all photos captioned; 1 some photos could not be read, their entries say why; 2 wrong usage, or "
    "captioning failed"
)


def main(args: list[str]) -> int:
    """Run `caption describe --engine ray`; EPILOG tells the exit codes."""
    options = make_parser().parse_args(args)
    from caption.runtime.on_ray import INSTALL, Job, caption_photos

    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UserError(INSTALL) from None
    search = {name: getattr(options, name) for name in ("beam_size", "length_normalization")}
    search = {name: value for name, value in search.items() if value is not None}
    model = os.path.abspath(options.model) if os.path.isfile(options.model) else options.model
    job = Job(model, options.out, options.format, search or None, options.device, tuple(options.trust))
    photos = _photos(options)
    done = failed = files = 0
    with progress_bar("captioning", len(photos), unit="photos") as advance:
        for piece in caption_photos(photos, job, options.actors, options.per_file):
            done, failed, files = done + piece.photos, failed + piece.failed, files + piece.pieces
            advance(piece.photos)
    print(
        f"caption describe: {done:,} photos in {files:,} files in '{options.out}'; {failed:,} could not be read",
        file=sys.stderr,
    )
    return SOME_FAILED if failed else DONE


def _photos(options: argparse.Namespace) -> list[str]:
    """The photos of the arguments and the list. Paths are made absolute, because actors run in other folders."""
    from caption.runtime.on_ray import list_photos

    listed = [line.strip() for _, line in numbered_lines(read_text(options.list))] if options.list else []
    photos: list[str] = []
    for name in (*options.images, *listed):
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


def make_parser() -> argparse.ArgumentParser:
    """The options of `caption describe --engine ray`."""
    parser = verb_parser("describe --engine ray", DESCRIPTION, EPILOG)
    add = parser.add_argument
    help_ = "photos, folders with their subfolders, or URLs of them in a bucket (s3://..., gs://...)"
    add("images", nargs="*", metavar="IMAGE", help=help_)
    add("--engine", choices=("ray",), required=True, help=argparse.SUPPRESS)
    add("--list", metavar="FILE", help="a text file with a photo, folder or URL in each line")
    add("--model", required=True, metavar="CKPT|NAME", help="a checkpoint, or the name of an installed model")
    add_trust(parser)
    add("--out", required=True, metavar="DIR|URL", help="folder of the results; made, or continued")
    add(
        "--format", choices=("jsonl", "parquet"), default="jsonl", help="format of the results; default jsonl"
    )
    add("--per-file", type=count, default=1000, metavar="N", help="photos in a file of results; default 1000")
    add("--actors", type=count, metavar="N", help="captioners; default: one for each processor or GPU")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="what a captioner runs on; default cpu")
    add("--beam-size", type=int, metavar="K", help="hypotheses of the beam search; default: the model's")
    help_ = "exponent of the length by which log p is divided, 0 = none; default: the model's"
    add("--length-normalization", type=float, metavar="A", help=help_)
    return parser
