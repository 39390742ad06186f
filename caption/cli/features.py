"""`caption features`: encode a dataset's images once, for faster training."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from caption.cli.configuration.arguments import add_config, add_device, add_trust, count
from caption.cli.exit_codes import DONE, SOME_FAILED
from caption.cli.printing import say

HELP = """\
Encode every image of a data set once and store its regions, so that training need not decode and encode images
again. The configuration is that of the training; its entries model.encoder, data.transform and data.reader are used.
The command may be stopped at any moment; the same command continues. Train with `data.features: DIR` in the
configuration, or `--data.features DIR` on the command line.

Single entries of the configuration can be overridden as in training: --model.encoder.weights FILE,
--data.transform.size 96, ... Several configurations are laid over each other.

exit code: 0 all images are in the store; 1 some cannot be read: they are named on stderr and left out;
2 wrong usage, configuration or data, or a store that does not fit them.
"""


def main(options: argparse.Namespace) -> int:
    """Run `caption features`."""
    # These import torch, which takes seconds; --help must not wait for it.
    from caption.cli.configuration.parts import frozen_encoder, make_reader, make_transform, read_parts
    from caption.core.runtime.atomic_files import make_folder
    from caption.data.features.extraction import write_features
    from caption.kernels import accelerate
    from caption.models.model_zoo import check_device, load

    make_folder(Path(os.path.expanduser(options.out)), "--out")
    needed = ("data.reader",) if options.model else ("data.reader", "data.transform", "model.encoder")
    parts = read_parts(options.config, options.overrides, needed)
    splits = make_reader(parts).read()
    if options.mirrored:
        splits = {"train": splits.get("train", [])}  # only training images are mirrored
    images = [image for split in splits.values() for image in split]
    if options.model:
        captioner = load(options.model, trust=options.trust)
        encoder, transform = captioner.encoder, captioner.transform
        encoder.freeze()
    else:
        encoder, transform = frozen_encoder(parts), make_transform(parts)
    device = check_device(options.device)
    accelerate(encoder, device)
    speed = {"batch_size": options.batch_size, "device": str(device)}
    result = write_features(encoder, transform, images, options.out, **speed, mirrored=options.mirrored)
    for image, error in result.failed:
        say("features", f"not stored: image {image.id!r}: {error}")
    say("features", f"'{options.out}': {result}")
    return SOME_FAILED if result.failed else DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption features`."""
    add = parser.add_argument
    add_config(add, "of the training")
    add("--out", metavar="DIR", required=True, help="folder of the store; created, or continued")
    add("--model", metavar="CKPT|NAME", help="take encoder and transform from this model")
    add_trust(parser)
    add_device(parser)
    add("--batch-size", metavar="N", type=count, default=32, help="images encoded at once (default 32)")
    help_ = "store the training images with left and right exchanged, for data.flip.features"
    add("--mirrored", action="store_true", help=help_)
