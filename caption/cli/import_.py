"""`caption import`: make a checkpoint from a model of the authors' code or of sgrvinod's tutorial."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import add_noun
from caption.cli.exit_codes import DONE
from caption.cli.printing import say

if TYPE_CHECKING:
    from caption.captioner import Captioner

HELP = """\
Make a checkpoint of this package from a trained model of another one: arctic, the authors' code, or sgrvinod, the
most widely used re-implementation. `caption import SOURCE --help` lists the files that are needed.
"""


ARCTIC = """\
Make a checkpoint of this package from a model of the authors' code (kelvinxu/arctic-captions).

  caption import arctic MODEL.npz --options OPTIONS.json --vocabulary WORDS.txt --out MODEL.ckpt

That code saves the options beside MODEL.npz as a pickle, MODEL.npz.pkl; write them to JSON or YAML (docs/presets.md
shows how). WORDS.txt has one word a line, from id 2 on. The authors' regions came from Caffe's VGG19. Torchvision's
weights, which are downloaded without --encoder-weights, give different regions."""

SGRVINOD = """\
Make a checkpoint of this package from a decoder of sgrvinod's "a PyTorch Tutorial to Image Captioning".

  caption import sgrvinod STATE.pth --word-map MAP.json --out MODEL.ckpt

STATE.pth is the state dict of its DecoderWithAttention, MAP.json its WORDMAP_*.json. The tutorial's checkpoints are
pickled objects, which can run any code; if you trust one, save its state dicts where the tutorial's code is installed
(docs/presets.md shows how).
--encoder-weights takes the state dict of its Encoder, which matters if it was fine-tuned; without it, torchvision's
ResNet-101 is downloaded."""


def main(options: argparse.Namespace) -> int:
    """Run `caption import`."""

    # These import torch, which takes seconds that --help should not take.
    from caption.core.runtime.atomic_files import creating
    from caption.core.runtime.outputs import new_file
    from caption.models import checkpoint

    out = new_file(options.out, (".ckpt", ".safetensors"), "--out")
    load, _ = SOURCES[options.source]
    captioner = load(options)
    checkpoint.save(captioner, out, opener=creating)
    say("import", f"{out}: {len(captioner.vocabulary)} words; try caption describe PHOTO --model {out}")
    return DONE


def _arctic(options: argparse.Namespace) -> Captioner:
    from caption.models.importers import arctic

    encoder = (options.encoder, options.encoder_weights)
    return arctic.load(options.model, options.options, options.vocabulary, *encoder)


def _sgrvinod(options: argparse.Namespace) -> Captioner:
    from caption.models.importers import sgrvinod

    return sgrvinod.load(options.state, options.word_map, options.encoder, options.encoder_weights)


SOURCES = {"arctic": (_arctic, ARCTIC), "sgrvinod": (_sgrvinod, SGRVINOD)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption import`."""
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    arctic, sgrvinod = (add_noun(sources, name, help_) for name, (_, help_) in SOURCES.items())
    for source in (arctic, sgrvinod):
        source.add_argument("--out", required=True, metavar="MODEL", help="the checkpoint to write")
        help_ = "YAML with 'encoder' and 'transform' (default: the published model's)"
        source.add_argument("--encoder", metavar="FILE", help=help_)
        help_ = "state dict of the encoder (default: torchvision's, downloaded)"
        source.add_argument("--encoder-weights", metavar="FILE", help=help_)
    arctic.add_argument("model", metavar="MODEL.npz", help="its arrays")
    arctic.add_argument("--options", required=True, metavar="FILE", help="its options, in JSON or YAML")
    arctic.add_argument("--vocabulary", required=True, metavar="FILE", help="its words, by id from 2 on")

    sgrvinod.add_argument("state", metavar="STATE.pth", help="state dict of a DecoderWithAttention")
    sgrvinod.add_argument("--word-map", required=True, metavar="FILE", help="its words and their ids")
