"""Where a model looks on scenes of Shapes, and whether that is why it says it: all measurements of one model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from caption.analysis import baseline_maps
from caption.analysis.faithfulness import (
    FaithfulnessCurves,
    Removed,
    Replaced,
    faithfulness_curves,
    mean_regions,
)
from caption.analysis.faithfulness.adversary import Adversaries, adversarial_maps
from caption.analysis.faithfulness.interchange import Interchange, interchange
from caption.analysis.faithfulness.permutation import Permutation, permute
from caption.analysis.faithfulness.rankings import ORDERS, AtRandom, Order
from caption.analysis.pointing_game import Grounding, ground
from caption.analysis.self_attention import has_rollout, rollout
from caption.captioner import Captioner
from caption.data.boxes import Boxes
from caption.data.shapes import Shapes
from caption.data.shapes.scene import COLOURS
from caption.data.shapes.silhouettes import SHAPES
from caption.errors import UserError
from caption.result import Caption

TRAINING_SCENES = 500
"""Training scenes that the width of the centre prior and the mean region are taken from."""

OBJECT_WORDS = frozenset(COLOURS) | frozenset(SHAPES)
KINDS = {"colours": frozenset(COLOURS), "shapes": frozenset(SHAPES)}
"""Naming words by what they may be exchanged with."""


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
class Study:
    """All that was measured of one model."""

    name: str
    captioner: Captioner
    captions: list[Caption]
    groundings: Mapping[str, Grounding]
    """By the maps that were used."""
    curves: Mapping[str, FaithfulnessCurves]
    """By the way of hiding regions."""
    permutation: Permutation
    adversaries: Adversaries
    exchanges: Mapping[str, Interchange]
    """By the kind of words whose maps are exchanged."""


def study(
    name: str, captioner: Captioner, scenes: Scenes, report: Callable[[str], None] = lambda message: None
) -> Study:
    """Measure one model.

    Args:
        name, captioner: the model.
        scenes: what it captions.
        report: called after each measurement, with its name and the seconds so far.

    Raises:
        UserError: its captions name no object of Shapes, or fewer than two of them have words.
    """
    started = time.monotonic()
    captions = captioner.describe(list(scenes.photos))
    if (spoken := sum(map(bool, (caption.words for caption in captions)))) < 2:
        raise UserError(
            f"--model {name}: {spoken} of its {len(captions)} captions have words, and maps are exchanged between two: "
            "take a model that captions Shapes, or more scenes with --limit"
        )
    groundings = play(captions, scenes, carried_back(captioner, captions, scenes))
    if not len(groundings["its own maps"]):
        raise UserError(
            f"--model {name}: its captions name no object of Shapes, such as {captions[0].text!r}"
        )
    report(f"{name}: grounding, captions included: {time.monotonic() - started:.1f} s")
    permutation = permute(captioner, scenes.photos, captions)
    adversaries = adversarial_maps(captioner, scenes.photos, captions)
    groundings["maps of an adversary"] = ground(
        zip(with_maps(captions, adversaries), scenes.boxes, strict=True)
    )
    report(f"{name}: adversarial maps: {time.monotonic() - started:.1f} s")
    exchanges = {
        kind: interchange(captioner, scenes.photos, words, captions) for kind, words in KINDS.items()
    }
    report(f"{name}: permuted and exchanged weights: {time.monotonic() - started:.1f} s")
    orders: dict[str, Order] = {**ORDERS, "random": AtRandom(draws=3)}
    mean = mean_regions(captioner, scenes.training)
    ways: dict[str, Removed | Replaced] = {"removed": Removed(), "replaced": Replaced(mean)}
    curves = {
        way: faithfulness_curves(captioner, scenes.photos, captions, orders, ablation)
        for way, ablation in ways.items()
    }
    report(f"{name}: deletion and insertion: {time.monotonic() - started:.1f} s")
    return Study(name, captioner, captions, groundings, curves, permutation, adversaries, exchanges)


def carried_back(captioner: Captioner, captions: list[Caption], scenes: Scenes) -> dict[str, list[Caption]]:
    """The model's maps, carried back through a refiner that is self-attention; {} for other refiners."""
    if not has_rollout(captioner):
        return {}
    return {"rolled out through self-attention": rollout(captioner, scenes.photos, captions)}


def play(
    captions: list[Caption], scenes: Scenes, others: Mapping[str, list[Caption]] | None = None
) -> dict[str, Grounding]:
    """The pointing game with the model's maps, with other maps of the model by their names, and with baselines."""
    maps = {
        "its own maps": captions,
        **(others or {}),
        "maps of another word": baseline_maps.other_word(captions),
        "maps of another image": baseline_maps.other_image(captions),
        "centre prior": baseline_maps.centred(captions, scenes.sigma),
        "uniform": baseline_maps.uniform(captions),
    }
    return {name: ground(zip(drawn, scenes.boxes, strict=True)) for name, drawn in maps.items()}


def with_maps(captions: list[Caption], adversaries: Adversaries) -> list[Caption]:
    """The captions with the adversary's maps."""
    return [
        caption.with_weights(adversaries.weights[adversaries.images == number].reshape(caption.weights.shape))
        for number, caption in enumerate(captions)
    ]


def make_scenes(folder: Path, limit: int) -> Scenes:
    """Generate Shapes in a folder, with so many test scenes."""
    reader = Shapes(str(folder), train=TRAINING_SCENES, val=1, test=limit)
    splits = reader.read()
    boxes, training = reader.boxes("test"), reader.boxes("train")
    sigma = baseline_maps.fit_sigma(
        (objects, (0, 0, reader.size, reader.size)) for objects in training.values()
    )
    return Scenes(
        [str(image.path) for image in splits["test"]],
        [boxes[image.id] for image in splits["test"]],
        [str(image.path) for image in splits["train"]],
        sigma,
    )
