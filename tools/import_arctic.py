"""Make a checkpoint of this package from a model of the authors' code (kelvinxu/arctic-captions).

    python tools/import_arctic.py MODEL.npz --options OPTIONS.json --vocabulary WORDS.txt --out MODEL.ckpt

Beside MODEL.npz, that code left the options as a pickle, MODEL.npz.pkl; write them to JSON or YAML (docs/presets.md
shows how). WORDS.txt has a word a line, from id 2 on. The authors' regions came from Caffe's VGG19: torchvision's
weights, which are downloaded without --encoder-weights, give others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from caption.captioner import Captioner
from caption.importers import arctic, assemble, command, eyes


def main(args: Sequence[str] | None = None) -> int:
    """Run the tool; see `caption.importers.command.run` for the exit codes."""
    parser = command.parser(__doc__)
    parser.add_argument("model", metavar="MODEL.npz", help="its arrays")
    parser.add_argument(
        "--options", required=True, metavar="OPTIONS.json", help="its options, in JSON or YAML"
    )
    parser.add_argument("--vocabulary", required=True, metavar="WORDS.txt", help="its words, by id from 2 on")
    return command.run(parser, _make, args)


def _make(options: argparse.Namespace) -> Captioner:
    imported = arctic.read(options.model, options.options, options.vocabulary)
    see = eyes(arctic.ENCODER, options.encoder, options.encoder_weights)
    captioner = assemble(imported, see, arctic.SEARCH)
    see.encoder.load_pretrained()
    return captioner


if __name__ == "__main__":
    sys.exit(main())
