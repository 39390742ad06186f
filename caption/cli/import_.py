"""`caption import`: make a checkpoint of this package from a trained model of another one."""

from __future__ import annotations

import argparse
import sys

from caption.cli.exit_codes import DONE
from caption.errors import UserError

DESCRIPTION = """\
Make a checkpoint of this package from a trained model of another one: arctic, the authors' code, or sgrvinod, the
re-implementation that is used most. `caption import SOURCE --help` says which files are needed.
"""
ARCTIC = """\
Make a checkpoint of this package from a model of the authors' code (kelvinxu/arctic-captions).

  caption import arctic MODEL.npz --options OPTIONS.json --vocabulary WORDS.txt --out MODEL.ckpt

That code saves the options beside MODEL.npz as a pickle, MODEL.npz.pkl; write them to JSON or YAML (docs/presets.md
shows how). WORDS.txt has one word a line, from id 2 on. The authors' regions came from Caffe's VGG19. Torchvision's
weights, which are downloaded without --encoder-weights, give others.
"""
SGRVINOD = """\
Make a checkpoint of this package from a decoder of sgrvinod's "a PyTorch Tutorial to Image Captioning".

  caption import sgrvinod STATE.pth --word-map MAP.json --out MODEL.ckpt

STATE.pth is the state dict of its DecoderWithAttention, MAP.json its WORDMAP_*.json. The tutorial's checkpoints are
pickled objects; save the state dicts where the tutorial's code is installed (docs/presets.md shows how).
--encoder-weights takes the state dict of its Encoder, which matters if it was fine-tuned; without it, torchvision's
ResNet-101 is downloaded.
"""


def main(args: list[str]) -> int:
    """Run `caption import`.

    Returns:
        0: the checkpoint is written.

    Raises:
        UserError: a file is missing, damaged or does not fit; the checkpoint cannot be written.
        SystemExit: with code 2 for wrong usage, with 0 after --help.
    """
    options = _parser().parse_args(args)

    # These import torch, which takes seconds that --help should not take.
    from caption import checkpoint
    from caption.cli.files import output_file
    from caption.importers import arctic, sgrvinod

    out = output_file(options.out, "--out")
    encoder = (options.encoder, options.encoder_weights)
    if options.source == "arctic":
        captioner = arctic.load(options.model, options.options, options.vocabulary, *encoder)
    else:
        captioner = sgrvinod.load(options.state, options.word_map, *encoder)
    try:
        checkpoint.save(captioner, out)
    except (OSError, RuntimeError) as error:
        raise UserError(f"--out {out} cannot be written: {error}") from error
    print(
        f"{out}: {len(captioner.vocabulary)} words; try caption describe PHOTO --model {out}", file=sys.stderr
    )
    return DONE


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("caption import", description=DESCRIPTION, formatter_class=formatter)
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")

    def add_source(name: str, description: str) -> argparse.ArgumentParser:
        source = sources.add_parser(
            name,
            help=description.partition("\n")[0],
            description=description,
            formatter_class=formatter,
            allow_abbrev=False,
        )
        source.add_argument("--out", required=True, metavar="MODEL", help="the checkpoint to write")
        source.add_argument(
            "--encoder",
            metavar="FILE",
            help="YAML with 'encoder' and 'transform' (default: the published model's)",
        )
        source.add_argument(
            "--encoder-weights",
            metavar="FILE",
            help="state dict of the encoder (default: torchvision's, downloaded)",
        )
        return source

    arctic = add_source("arctic", ARCTIC)
    arctic.add_argument("model", metavar="MODEL.npz", help="its arrays")
    arctic.add_argument("--options", required=True, metavar="FILE", help="its options, in JSON or YAML")
    arctic.add_argument("--vocabulary", required=True, metavar="FILE", help="its words, by id from 2 on")
    sgrvinod = add_source("sgrvinod", SGRVINOD)
    sgrvinod.add_argument("state", metavar="STATE.pth", help="state dict of a DecoderWithAttention")
    sgrvinod.add_argument("--word-map", required=True, metavar="FILE", help="its words and their ids")
    return parser
