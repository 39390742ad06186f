"""`caption export`: write a model for use outside this package."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from caption.cli.arguments import count, verb_parser
from caption.cli.exit_codes import DONE

DESCRIPTION = """\
Write a model as ONNX files: the encoder, one step of the decoder, the vocabulary, and a Python module that captions
photos with them. The module needs numpy, onnxruntime and Pillow, but neither torch nor this package:

  caption export shapes --format onnx --out FOLDER
  python FOLDER/captioner.py PHOTO...
"""
EPILOG = "docs/export.md lists the attention mechanisms that can be exported"


def main(args: list[str]) -> int:
    """Run `caption export`."""
    parser = verb_parser("export", DESCRIPTION, EPILOG)
    parser.add_argument("model", metavar="CKPT|NAME", help="a checkpoint, or the name of an installed model")
    parser.add_argument("--format", choices=("onnx",), required=True, help="format of the files")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="a new folder, or an earlier export")
    help_ = "hypotheses of the module's beam search, 1 = greedy; default: the model's"
    parser.add_argument("--beam-size", type=count, metavar="K", help=help_)
    options = parser.parse_args(args)

    # These import torch, which takes seconds that --help should not take.
    from caption.cli.files import make_folder
    from caption.export import onnx_files
    from caption.model_zoo import load
    from caption.search import BeamSearch

    folder = Path(options.out).expanduser()
    onnx_files.require_packages()
    onnx_files.require_own_folder(folder)
    captioner = load(options.model)
    if options.beam_size:
        beam = captioner.search if isinstance(captioner.search, BeamSearch) else BeamSearch()
        captioner.search = dataclasses.replace(beam, beam_size=options.beam_size, candidates=1)
    make_folder(folder, "--out")
    onnx_files.write(captioner, folder)
    print(f"{folder}: try python {folder / onnx_files.SCRIPT} PHOTO", file=sys.stderr)
    return DONE
