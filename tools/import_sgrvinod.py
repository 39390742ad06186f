"""Make a checkpoint of this package from a decoder of sgrvinod's "a PyTorch Tutorial to Image Captioning".

    python tools/import_sgrvinod.py STATE.pth --word-map MAP.json --out MODEL.ckpt

STATE.pth is the state dict of its DecoderWithAttention, MAP.json its WORDMAP_*.json. The tutorial's checkpoints hold
whole pickled objects; save the state dicts with the tutorial's code at hand (docs/presets.md shows how).
--encoder-weights takes that of its Encoder, which matters if it was fine-tuned; without, torchvision's ResNet-101 is
downloaded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from caption.captioner import Captioner
from caption.encoders import TorchvisionEncoder
from caption.importers import assemble, command, eyes, sgrvinod


def main(args: Sequence[str] | None = None) -> int:
    """Run the tool; see `caption.importers.command.run` for the exit codes."""
    parser = command.parser(__doc__)
    parser.add_argument("state", metavar="STATE.pth", help="state dict of a DecoderWithAttention")
    parser.add_argument("--word-map", required=True, metavar="MAP.json", help="its words and their ids")
    return command.run(parser, _make, args)


def _make(options: argparse.Namespace) -> Captioner:
    imported = sgrvinod.read(options.state, options.word_map)
    see = eyes(sgrvinod.ENCODER, options.encoder, options.encoder_weights)
    captioner = assemble(imported, see, sgrvinod.SEARCH)
    if options.encoder_weights is not None and isinstance(see.encoder, TorchvisionEncoder):
        sgrvinod.load_encoder_weights(see.encoder, options.encoder_weights)
    else:
        see.encoder.load_pretrained()
    return captioner


if __name__ == "__main__":
    sys.exit(main())
