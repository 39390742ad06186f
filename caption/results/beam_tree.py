"""The tree of a beam search for one photo: the hypotheses that it kept at each step.

Importing this module does not load PyTorch; `Captioner.describe(..., beam_tree=True)` makes trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from caption.search.base import SearchRecord


class BeamNode(NamedTuple):
    """A hypothesis that the search kept, by its last word."""

    word: str
    """"(end)" for the end token; the search returns hypotheses that end with it, or drops them."""
    parent: int | None
    """Place in the step before of the hypothesis that it continues; None at the first step."""
    log_prob: float
    """Natural log-probability of the word, given those before it."""
    total: float
    """Natural log-probability of all words so far."""
    ended: bool
    """Whether the word is the end token."""
    map_index: int
    """Index into `BeamTree.weights` of the α with which the word was chosen. Children of one hypothesis share it."""


@dataclass(frozen=True, eq=False)
class BeamTree:
    """The hypotheses that a beam search kept for one photo.

    Attributes:
        steps: the hypotheses of each step, most probable first.
        weights: (N, rows, cols) float32, α of each `map_index`.
        paths: for the caption and each of its alternatives, the place of its hypothesis at every step until its end.
        width: K, the largest number of hypotheses at a step.
    """

    steps: list[list[BeamNode]]
    weights: np.ndarray
    paths: list[list[int]]
    width: int

    def __repr__(self) -> str:
        count = sum(map(len, self.steps))
        return f"BeamTree({count} hypotheses in {len(self.steps)} steps, beam {self.width})"

    def words(self, step: int, place: int) -> list[str]:
        """The words of a hypothesis, the first one first."""
        words: list[str] = []
        at: int | None = place
        while at is not None:
            node = self.steps[step][at]
            words.append(node.word)
            step, at = step - 1, node.parent
        return words[::-1]

    def moved_share(self, step: int, place: int) -> float | None:
        """Share of a hypothesis's attention that lies elsewhere than the caption's at the same step, in [0, 1].

        It is Σ |α − α*| / (Σ |α| + Σ |α*|), the total variation for weights that sum to one; None after the caption's
        end.
        """
        if step >= len(self.paths[0]):
            return None
        weights = self.weights[self.steps[step][place].map_index].astype(np.float64)
        best = self.weights[self.steps[step][self.paths[0][step]].map_index].astype(np.float64)
        size = np.abs(weights).sum() + np.abs(best).sum()
        return float(np.abs(weights - best).sum() / size) if size else 0.0


def beam_tree(
    record: SearchRecord, weights: Tensor, grid: tuple[int, int], name: Callable[[int], str], end: int
) -> BeamTree:
    """The tree of one image.

    Args:
        record: of the image: its tensors without their first dimension.
        weights: (S, K, L) α of the record's trace.
        grid: rows and columns of the L regions.
        name: gives the word of an id.
        end: the end token's id.
    """
    columns = (record.words, record.parents, record.log_probs)
    words, parents, log_probs = (values[: int(record.steps)].tolist() for values in columns)
    steps: list[list[BeamNode]] = []
    places: list[dict[int, int]] = []  # of each step's hypotheses, by their slots
    map_places: list[tuple[int, int]] = []  # the step and the slot of each one's weights
    before: dict[int, int | None] = {
        0: None
    }  # the places of the hypotheses that can be continued, by their slots
    for step, columns in enumerate(zip(words, parents, log_probs, strict=True)):
        nodes: list[BeamNode] = []
        of_step: dict[int, int] = {}
        map_of: dict[int, int] = {}  # the index of each parent's map
        for slot, (word, parent, log_prob) in enumerate(zip(*columns, strict=True)):
            if parent not in before or log_prob == -math.inf:
                continue
            if parent not in map_of:
                map_of[parent] = len(map_places)
                map_places.append((step, slot))
            place, text = before[parent], "(end)" if word == end else name(word)
            total = log_prob + (0.0 if place is None else steps[-1][place].total)
            of_step[slot] = len(nodes)
            nodes.append(BeamNode(text, place, log_prob, total, word == end, map_of[parent]))
        if not nodes:
            break
        steps.append(nodes)
        places.append(of_step)
        before = dict(of_step)
    paths = [
        [places[step][slot] for step, slot in enumerate(path) if slot >= 0] for path in record.places.tolist()
    ]
    at = tuple(np.array(map_places, dtype=np.int64).reshape(-1, 2).T)
    maps = weights.float().numpy()[at].reshape(-1, *grid)
    return BeamTree(steps, maps, [path for path in paths if path], max(map(len, steps), default=0))
