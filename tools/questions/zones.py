"""The zones of a scene that an attention map may lie on, given two objects of a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from caption.analysis.replay import Step
from caption.box import BoxLike
from caption.captioner import Captioner
from caption.regions import Grid
from tools.questions.bench import Sentence, covered

ZONES = ("first object", "second object", "between", "third object", "elsewhere")
"""The object that the sentence names first, the other, the rest of the smallest box around both, the object that it
does not name, and everything else. They cover the scene once."""
PLACES = (
    "its own map",
    "first object",
    "second object",
    "both objects",
    "between",
    "elsewhere",
    "everywhere",
)
"""Where a model is made to look: at "both objects" with equal weights, "elsewhere" at none and not between."""


def zones(captioner: Captioner, grid: Grid, sentence: Sentence) -> np.ndarray:
    """(len(ZONES), L): the part of each cell that belongs to each zone; the columns sum to 1."""
    first, second = sentence.box(sentence.subject), sentence.box(sentence.object)
    named: Sequence[BoxLike] = (first, second)
    others = [
        box for boxes in sentence.boxes.values() for box in boxes if tuple(box) not in map(tuple, named)
    ]
    around = (
        *(min(sides) for sides in list(zip(first, second, strict=True))[:2]),
        *(max(sides) for sides in list(zip(first, second, strict=True))[2:]),
    )

    def cells(*boxes: BoxLike) -> np.ndarray:
        return covered(captioner, grid, boxes)

    objects = cells(*named, *others)
    # Boxes of objects do not overlap.
    third = cells(*others) if others else np.zeros_like(objects)
    between = cells(around, *named, *others) - objects
    return np.stack([cells(first), cells(second), between, third, 1 - objects - between])


def even_on(parts: Tensor) -> Tensor:
    """(B, ZONES, L) -> (B, PLACES - 1, L) even weights on each place but the model's own."""
    first, second, between, third, rest = parts.unbind(1)
    both = first / first.sum(-1, keepdim=True) + second / second.sum(-1, keepdim=True)
    places = torch.stack((first, second, both, between, third + rest, torch.ones_like(first)), 1)
    return places / places.sum(-1, keepdim=True)


def at_relations(step: Step, given: Sequence[Sentence]) -> tuple[Step, list[Sentence]]:
    """Those captions of a step whose relation it decides, with their sentences; `given` are those of the batch."""
    chosen = [n for n, row in enumerate(step.rows.tolist()) if given[row].relation == step.number]
    sentences = [given[int(step.rows[n])] for n in chosen]
    return (step.take(torch.tensor(chosen)) if chosen else step), sentences
