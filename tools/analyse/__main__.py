"""Measure where models look and whether that is why they say it, on Shapes: writes docs/analysis.md and its figure.

    python -m tools.analyse                                     # the models that come with the package, some minutes
    python -m tools.analyse --limit 50 --out /tmp/analysis.md   # a quick look
    python -m tools.analyse --model soft=shapes --model mine=runs/mine/best.ckpt --out mine.md

A model is given as NAME=MODEL: its name in the tables, and a checkpoint or an installed model. It must caption Shapes.
The measured sections of the page are replaced, and the prose between them is kept. A page other than docs/analysis.md
gets the same prose.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import torch

import caption
from caption.analysis import blind
from caption.analysis.agreement import agree
from caption.analysis.faithfulness import Erasure, Removed, Replaced, erase, mean_region
from caption.analysis.faithfulness.curves import Kind
from caption.analysis.faithfulness.rankings import ORDERS, AtRandom, Order
from caption.analysis.grounding import Boxes, GroundableCaption, Grounding, ground
from caption.analysis.interchange import Interchange, interchange
from caption.analysis.permutation import Permutation, permute
from caption.captioner import Captioner
from caption.data.shapes import Shapes
from caption.decoders import ConstantState
from caption.errors import UserError
from caption.result import Caption
from tools import make_parser
from tools.analyse.report import KINDS, OBJECT_WORDS, Setting, write_report
from tools.benchmark.harness import say
from tools.documents import write_sections

PAGE = Path(__file__).resolve().parents[2] / "docs" / "analysis.md"
DEFAULT = ("soft=shapes", "hard=shapes-hard")
ALL = 500
"""Scenes of the test split."""
TRAINING_SCENES = 500
"""Training scenes that the width of the centre prior and the mean region are taken from."""
PANELS: tuple[tuple[Kind, str], ...] = (
    ("deletion", "removed"),
    ("deletion", "replaced"),
    ("insertion", "removed"),
)


@dataclass(frozen=True)
class Scenes:
    """The test split."""

    photos: list[str]
    boxes: list[Boxes]
    training: list[str]
    """Photos of training scenes."""
    sigma: float
    """Width of the centre prior, fitted to the boxes of training scenes."""


@dataclass(frozen=True)
class Analysis:
    """All that was measured of one model."""

    name: str
    captioner: Captioner
    captions: list[Caption]
    groundings: Mapping[str, Grounding]
    """By the maps that were used."""
    erasures: Mapping[str, Erasure]
    """By the way of hiding regions."""
    permutation: Permutation
    exchanges: Mapping[str, Interchange]
    """By the kind of words whose maps are exchanged."""
    seconds: float
    """For captions and groundings."""

    @property
    def starts_blind(self) -> bool:
        """Whether all that the model knows of an image comes through attention."""
        return isinstance(getattr(self.captioner.decoder, "initial", None), ConstantState)


def main(args: Sequence[str] | None = None) -> int:
    """Measure, and write the page and its figure."""
    parser = make_parser("analyse", __doc__)
    parser.add_argument(
        "--model", action="append", metavar="NAME=MODEL", help=f"default {' and '.join(DEFAULT)}"
    )
    parser.add_argument(
        "--limit", type=int, default=ALL, metavar="N", help=f"test scenes; default all, {ALL}"
    )
    parser.add_argument("--out", type=Path, default=PAGE, metavar="FILE.md")
    options = parser.parse_args(args)
    if options.limit < 2:
        parser.error(f"--limit {options.limit}: at least 2, since maps are exchanged between scenes")
    if not options.out.parent.is_dir() or options.out.suffix != ".md":
        parser.error(f"--out {options.out}: name a .md file in an existing folder")
    captioners: dict[str, Captioner] = {}
    try:
        for entry in options.model or DEFAULT:
            name, _, model = entry.partition("=")
            if not name or not model or name in captioners:
                parser.error(f"--model {entry}: write NAME=MODEL, such as soft=shapes, each name once")
            captioners[name] = caption.load(model)
        with tempfile.TemporaryDirectory() as folder:
            scenes = make_scenes(Path(folder), options.limit)
            analyses = [analyse(name, captioner, scenes) for name, captioner in captioners.items()]
            agreements = {
                (a.name, b.name): agree(a.captioner, b.captioner, scenes.photos, a.captions)
                for a, b in combinations(analyses, 2)
            }
    except UserError as error:
        parser.error(str(error))
    picture = options.out.with_suffix(".png")
    draw(analyses, picture)
    arguments = "".join(f" --model {shlex.quote(model)}" for model in options.model or ())
    arguments += "" if options.limit == ALL else f" --limit {options.limit}"
    setting = Setting(options.limit, scenes.sigma, torch.get_num_threads(), picture.name, arguments)
    write_sections(options.out, write_report(analyses, agreements, setting), template=PAGE)
    say(f"analyse: wrote {options.out} and {picture}")
    return 0


def analyse(name: str, captioner: Captioner, scenes: Scenes) -> Analysis:
    """Measure one model; what is done, and the seconds so far, go to stderr.

    Raises:
        UserError: its captions name no object of Shapes.
    """
    started = time.monotonic()
    captions = captioner.describe(list(scenes.photos))
    groundings = play(captions, scenes)
    if not len(groundings["its own maps"]):
        said = repr(captions[0].text)
        raise UserError(f"--model {name}: its captions name no object of Shapes, such as {said}")
    seconds = time.monotonic() - started
    say(f"analyse: {name}: grounding, captions included: {seconds:.1f} s")
    permutation = permute(captioner, scenes.photos, captions)
    exchanges = {
        kind: interchange(captioner, scenes.photos, words, captions) for kind, words in KINDS.items()
    }
    say(f"analyse: {name}: permuted and exchanged weights: {time.monotonic() - started:.1f} s")
    orders: dict[str, Order] = {**ORDERS, "random": AtRandom(draws=3)}
    mean = mean_region(captioner, scenes.training)
    ways = {"removed": Removed(), "replaced": Replaced(mean)}
    erasures = {way: erase(captioner, scenes.photos, captions, orders, hide) for way, hide in ways.items()}
    say(f"analyse: {name}: deletion and insertion: {time.monotonic() - started:.1f} s")
    return Analysis(name, captioner, captions, groundings, erasures, permutation, exchanges, seconds)


def play(captions: list[Caption], scenes: Scenes) -> dict[str, Grounding]:
    """The pointing game with the model's maps and with blind ones."""
    maps: dict[str, Sequence[GroundableCaption]] = {
        "its own maps": captions,
        "maps of another word": blind.other_word(captions),
        "maps of another image": blind.other_image(captions),
        "centre prior": blind.centred(captions, scenes.sigma),
        "uniform": blind.uniform(captions),
    }
    return {name: ground(zip(drawn, scenes.boxes, strict=True)) for name, drawn in maps.items()}


def draw(analyses: Sequence[Analysis], path: Path) -> None:
    """A row of curves per model, for words that name objects: deletion in both ways of hiding, and insertion."""
    from matplotlib.figure import Figure

    from caption.visualize import curve_plot, save_figure

    fig = Figure(figsize=(10.4, 0.4 + 2.6 * len(analyses)), layout="constrained")
    rows = fig.subplots(len(analyses), 3, squeeze=False, sharey=True)
    for axes, analysis in zip(rows, analyses, strict=True):
        for ax, (kind, way) in zip(axes, PANELS, strict=True):
            curve_plot(ax, analysis.erasures[way].only(OBJECT_WORDS), kind)
            ax.set_title(f"{analysis.name}: {kind}, {way}", fontsize=10)
            ax.label_outer()
    rows[0, 2].legend(title="order", frameon=False, fontsize=8, loc="lower right")
    save_figure(fig, path, dpi=110)


def make_scenes(folder: Path, limit: int) -> Scenes:
    """Generate Shapes in a folder, with so many test scenes."""
    reader = Shapes(str(folder), train=TRAINING_SCENES, val=1, test=limit)
    splits = reader.read()
    boxes, training = reader.boxes("test"), reader.boxes("train")
    sigma = blind.fit_sigma((objects, (0, 0, reader.size, reader.size)) for objects in training.values())
    say("analyse: scenes generated")
    return Scenes(
        [str(image.path) for image in splits["test"]],
        [boxes[image.id] for image in splits["test"]],
        [str(image.path) for image in splits["train"]],
        sigma,
    )


if __name__ == "__main__":
    sys.exit(main())
