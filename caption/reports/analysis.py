"""Where models look, and whether that is why they say it, on Shapes: what `caption analyse` measures."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from caption.analysis import baseline_maps as blind
from caption.analysis.faithfulness import Erasure, Removed, Replaced, erase, mean_region
from caption.analysis.faithfulness.curves import Kind
from caption.analysis.faithfulness.interchange import Interchange, interchange
from caption.analysis.faithfulness.permutation import Permutation, permute
from caption.analysis.faithfulness.rankings import ORDERS, AtRandom, Order
from caption.analysis.grounding import GroundableCaption, Grounding, ground
from caption.captioner import Captioner
from caption.data.boxes import Boxes
from caption.data.shapes import Shapes
from caption.decoders import ConstantState
from caption.errors import UserError
from caption.reports.analysis_tables import KINDS, OBJECT_WORDS
from caption.result import Caption

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


def say(message: str) -> None:
    """Report progress on stderr."""
    print(message, file=sys.stderr, flush=True)


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
    say(f"caption analyse: {name}: grounding, captions included: {seconds:.1f} s")
    permutation = permute(captioner, scenes.photos, captions)
    exchanges = {
        kind: interchange(captioner, scenes.photos, words, captions) for kind, words in KINDS.items()
    }
    say(f"caption analyse: {name}: permuted and exchanged weights: {time.monotonic() - started:.1f} s")
    orders: dict[str, Order] = {**ORDERS, "random": AtRandom(draws=3)}
    mean = mean_region(captioner, scenes.training)
    ways: dict[str, Removed | Replaced] = {"removed": Removed(), "replaced": Replaced(mean)}
    erasures = {way: erase(captioner, scenes.photos, captions, orders, hide) for way, hide in ways.items()}
    say(f"caption analyse: {name}: deletion and insertion: {time.monotonic() - started:.1f} s")
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
    say("caption analyse: scenes generated")
    return Scenes(
        [str(image.path) for image in splits["test"]],
        [boxes[image.id] for image in splits["test"]],
        [str(image.path) for image in splits["train"]],
        sigma,
    )
