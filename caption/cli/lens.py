"""`caption lens`: make a lens: what a model's encoder sees where its decoder looks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from caption.cli.configuration.arguments import add_config, add_trust
from caption.cli.exit_codes import DONE
from caption.core.errors import number_of
from caption.core.runtime.outputs import FIGURES

if TYPE_CHECKING:  # torch takes seconds to import, and --help must not wait for it
    from caption.analysis.lens import Calibration
    from caption.analysis.lens.calibration import PhotoReading
    from caption.analysis.lens.reliability import Reliability

HELP = """\
Make the lens of a model: the classifier that its encoder was trained with, and probabilities that fit what people
name on the validation split. `caption describe --lens` and `caption.load(..., lens=True)` use the file beside the
model that has its name.

  caption lens runs/best.ckpt -c flickr8k_soft --out runs/best.lens
  caption lens runs/best.ckpt -c flickr8k_soft --out runs/best.lens --report test --figure reliability.png

Of the configuration only data.reader is used; its entries can be overridden as in training.
"""

FITTED = "val"
"""The split of the calibration."""


def main(options: argparse.Namespace) -> int:
    """Run `caption lens`."""

    from caption.analysis.lens import Lens, make_lens
    from caption.analysis.lens.calibration import common_nouns, fit, of_regions, read_photos, reliability
    from caption.analysis.lens.file import SUFFIX, save_lens
    from caption.analysis.lens.reliability import plot_reliability
    from caption.cli.configuration.parts import read_splits
    from caption.core.runtime.outputs import new_file
    from caption.core.runtime.progress import counted, progress_bar
    from caption.models.model_zoo import load
    from caption.visualize import save_figure

    out = new_file(options.out, (SUFFIX,), "--out")
    figure = None if options.figure is None else new_file(options.figure, FIGURES, "--figure")
    captioner = load(options.model, trust=options.trust)
    lens = make_lens(captioner)
    splits = read_splits(options.config, options.overrides, (FITTED, options.report))

    def read(split: str) -> list[PhotoReading]:
        images = splits[split]
        with progress_bar(f"reading {split}", len(images)) as advance:
            photos = counted((str(image.path) for image in images), advance)
            return read_photos(lens, captioner, photos, [image.captions for image in images])

    readings = read(FITTED)
    calibration = fit(lens, readings)
    fitted = common_nouns(lens, readings)
    if options.report != FITTED:
        readings = read(options.report)
    before_and_after = (None, calibration)
    words = [reliability(lens, readings, fitted, applied) for applied in before_and_after]
    single_regions = [of_regions(reading) for reading in readings]
    regions = [reliability(lens, single_regions, fitted, applied) for applied in before_and_after]
    far = sum(calibration.distance(reading.region) > calibration.farthest for reading in readings)
    save_lens(Lens(lens.classifier, lens.nouns, calibration), captioner, out)
    if figure is not None:
        save_figure(plot_reliability(dict(zip(("classifier", "calibrated"), words, strict=True))), figure)
    print(_summary(calibration, options.report, words, regions, far / len(readings)))
    return DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `caption lens`."""
    add = parser.add_argument
    add("model", metavar="CKPT|NAME", help="a model's file, or the name of an installed model")
    add_config(add, "whose data.reader names the captions")
    help_ = "a new file; `caption describe` finds it beside the model under its name"
    add("--out", metavar="FILE.lens", required=True, help=help_)
    help_ = "split on which probabilities are compared with what people name; default val, that of the fit"
    add("--report", metavar="SPLIT", default=FITTED, help=help_)
    add("--figure", metavar="FILE", help="a picture of this comparison, before and after calibration")
    add_trust(parser)


def _summary(
    calibration: Calibration,
    split: str,
    words: Sequence[Reliability],
    regions: Sequence[Reliability],
    far: float,
) -> str:
    """Reliabilities before and after calibration."""
    errors = [
        f"calibration error {before.error:.3f} -> {after.error:.3f}, NLL {before.nll:.3f} -> {after.nll:.3f} "
        f"({len(after.outcomes):,} nouns of {source})"
        for source, (before, after) in (("words", words), ("single regions", regions))
    ]
    return (
        f"calibrated on {calibration.photos:,} images. On {split}: {'; '.join(errors)}; "
        f"{number_of(len(calibration.doubtful), 'word')} can be doubted; {far:.1%} of the images are unlike those of "
        "the calibration"
    )
