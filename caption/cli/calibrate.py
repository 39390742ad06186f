"""Find the temperature at which a model's probabilities fit people's captions best (the smallest NLL on the validation
split), divide its logits by it, and write the model. Training on rewards, for instance, makes models far too sure.

  caption calibrate runs/best.ckpt -c flickr8k_soft --out runs/calibrated.ckpt

Of the configuration only data.reader is used; its entries can be overridden as in training. The greedy caption stays
the same; that of a beam search may change.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import add_config, add_trust
from caption.cli.exit_codes import DONE

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.analysis.calibration import TemperatureFit


def main(options: argparse.Namespace) -> int:
    """Run `caption calibrate`."""

    from caption.analysis.calibration import calibrate, divide_logits
    from caption.cli.configuration.parts import read_splits
    from caption.core.runtime.files import creating
    from caption.core.runtime.outputs import new_file
    from caption.core.runtime.progress import counted, progress_bar
    from caption.models import checkpoint
    from caption.models.model_zoo import load

    out = new_file(options.out, (".ckpt", ".safetensors"), "--out")
    captioner = load(options.model, trust=options.trust)
    images = read_splits(options.config, options.overrides, ("val",))["val"]
    with progress_bar("calibrating", len(images)) as advance:
        photos = counted((str(image.path) for image in images), advance)
        found = calibrate(captioner, photos, [image.captions for image in images])
    divide_logits(captioner, found.temperature)
    checkpoint.save(captioner, out, opener=creating)
    print(_summary(found, len(images)))
    return DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption calibrate`."""
    add = parser.add_argument
    add("model", metavar="CKPT|NAME", help="a model's file, or the name of an installed model")
    add_config(add, "whose data.reader names the captions")
    add("--out", metavar="FILE", required=True, help="a new file, .ckpt or .safetensors")
    add_trust(parser)


def _summary(found: TemperatureFit, images: int) -> str:
    from caption.analysis.calibration import TEMPERATURES

    at_the_end = found.temperature in (TEMPERATURES[0], TEMPERATURES[-1])
    return (
        f"temperature {found.temperature:.3f}: NLL per word {found.nll:.3f} -> {found.nll_after:.3f}, "
        f"calibration error {found.error:.3f} -> {found.error_after:.3f} "
        f"({found.words:,} words of {images:,} images)"
        + ("; no temperature beyond was tried: calibrate the file again" if at_the_end else "")
    )
