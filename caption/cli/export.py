"""`caption export`: write a model as ONNX files, which run without torch, or as one small file."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import add_precision, add_trust, count
from caption.cli.exit_codes import DONE
from caption.cli.printing import say
from caption.core.errors import UserError

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.captioner import Captioner

HELP = """\
Write a model in another format.

onnx: a folder with the encoder, one step of the decoder, the vocabulary, and a Python module that captions photos with
them. The module needs numpy, onnxruntime and Pillow, but neither torch nor this package:

  caption export shapes --format onnx --out FOLDER
  python FOLDER/captioner.py PHOTO...

safetensors: one file with the weights, and the description of the model in its header; ckpt: a checkpoint without
training state. This package loads both:

  caption export runs/best.ckpt --format safetensors --precision float16 --out model.safetensors
  caption describe PHOTO --model model.safetensors

--remove-closed-heads is for models with gates on their heads (-c attention/multi_head_gated and
-c attention/self_attention_gated): heads whose gates training has closed are removed. The model becomes smaller and
faster, and its captions stay the same.

See docs/export.md for the attention mechanisms that can be exported as ONNX files.
"""


def main(options: argparse.Namespace) -> int:
    """Run `caption export`."""
    if options.format == "onnx" and options.precision:
        raise UserError("--precision is for --format safetensors and ckpt")
    (_write_onnx if options.format == "onnx" else _write_file)(options)
    return DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption export`."""
    add, formats = parser.add_argument, ("onnx", "safetensors", "ckpt")
    add("model", metavar="CKPT|NAME", help="a model's file, or the name of an installed model")
    add("--format", choices=formats, required=True, help="format of the files")
    help_ = "onnx: a new folder, or an earlier export; otherwise a new file"
    add("--out", metavar="FOLDER|FILE", required=True, help=help_)
    help_ = "hypotheses of the search, 1 = greedy; default: the model's"
    add("--beam-size", type=count, metavar="K", help=help_)
    help_ = "leave out the heads whose gates are 0"
    add("--remove-closed-heads", action="store_true", help=help_)
    add_precision(parser)
    add_trust(parser)


def _load(options: argparse.Namespace) -> Captioner:
    from caption.attention import remove_closed_heads
    from caption.models.model_zoo import load
    from caption.search import adjusted

    captioner = load(options.model, trust=options.trust)
    if options.remove_closed_heads:
        for name, (kept, heads) in remove_closed_heads(captioner).items():
            say("export", f"{name}: {kept} of {heads} heads are open")
    if options.beam_size:
        captioner.search = adjusted(captioner.search, options.beam_size, candidates=1)
    return captioner


def _write_onnx(options: argparse.Namespace) -> None:
    from caption.analysis.lens.file import lens_path
    from caption.core.runtime.atomic_files import make_folder
    from caption.models.export import onnx_files

    folder = Path(os.path.expanduser(options.out))
    onnx_files.require_packages()
    make_folder(folder, "--out")
    onnx_files.check_free(folder)
    captioner = _load(options)
    onnx_files.write(captioner, folder)
    say("export", f"{folder}: try python {folder / onnx_files.SCRIPT} PHOTO")
    lens = [f"the lens {path}" for path in (lens_path(options.model),) if path.is_file()]
    if left_out := [*lens, *_left_out_of_graphs(captioner)]:
        say("export", f"not in {folder}: {'; '.join(left_out)}")


def _left_out_of_graphs(captioner: Captioner) -> list[str]:
    """What a caption of this model has, and one of its ONNX files lacks."""
    from PIL import Image

    maps = captioner.describe(Image.new("RGB", (captioner.transform.width, captioner.transform.height))).maps
    chosen = (
        ["the places that the attention chooses"]
        if maps.locations is not None or maps.points is not None
        else []
    )
    return [*([f"single maps ({', '.join(maps)}), only their summary is"] if maps else []), *chosen]


def _write_file(options: argparse.Namespace) -> None:
    from caption.analysis.lens.file import lens_path
    from caption.core.runtime.atomic_files import creating
    from caption.core.runtime.outputs import new_file
    from caption.models import checkpoint

    out = new_file(options.out, (f".{options.format}",), "--out")
    captioner = _load(options)
    checkpoint.save(captioner, out, options.precision, opener=creating)
    say("export", f"{out}: {out.stat().st_size / 1e6:.1f} MB; try caption describe PHOTO --model {out}")
    if (lens := lens_path(options.model)).is_file():
        say("export", f"not in {out}: the lens, which is a file of its own; copy {lens} to {lens_path(out)}")
