"""Grounding: does attention lie on the object that a word names? The pointing game, on captions a model wrote itself.

For every mention of an object in a caption, the pointing game (Zhang et al. 2016, "Top-down Neural Attention by
Excitation Backprop", ECCV) asks whether the maximum of the naming word's map lies in a box of that object. A second
number is the share of the map's mass that lies in the boxes. Both come with their chance level. An object with a mask
(`caption.data.boxes.ObjectMask`) is where its pixels are, not its box.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack

import numpy as np

from caption.analysis.covered_cells import centres_inside, coverage
from caption.analysis.table import AnalysisTable
from caption.core.box import BoxLike, cell_centres
from caption.core.errors import DataError, UserError, first_few
from caption.data.box_faults import boxes_fault
from caption.data.boxes import Boxes
from caption.metrics.significance import estimate
from caption.results.caption import Caption
from caption.text.mentions import Mention, find_mentions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from caption.data.photos import Photo
    from caption.visualize.styles import OverlayOptions


@dataclass(frozen=True)
class Pointing:
    """The grounding of one mention. All four numbers are 0 if the image does not show the object."""

    caption: int
    """Index of the caption among those measured."""
    mention: Mention
    hit: float
    """1 if the maximum of the map lies in a box, else 0; a fraction where several cells tie for it."""
    chance: float
    """The expected hit of a cell drawn uniformly."""
    mass: float
    """Share of the map's mass that lies in the boxes, 0 to 1."""
    mass_chance: float
    """The same for a uniform map: the share of the grid's area that the boxes cover."""

    @property
    def verdict(self) -> str:
        """In words."""
        return "not in the photo" if not self.mention.boxes else "hit" if self.hit else "miss"


@dataclass(frozen=True)
class Grounding:
    """The mentions of many captions, each measured. Means over no mentions are 0."""

    pointings: tuple[Pointing, ...]
    measured: tuple[Caption, ...] = field(default=(), compare=False)
    """The captions, for `plot`."""
    unsaid: tuple[str, ...] = field(default=(), compare=False)
    """The names of objects with boxes that are not in the caption of their image."""

    @property
    def not_said(self) -> str:
        """The objects that are not in the captions, in words."""
        return f"{first_few(self.unsaid) or 'an object with a box'}: not in the caption"

    def __repr__(self) -> str:
        if not self.pointings:
            return f"Grounding(0 mentions: {self.not_said})"
        lies = f"pointing {self.accuracy:.2f} (chance {self.chance:.2f})"
        mass = f"attention in boxes {self.mass:.2f} (chance {self.mass_chance:.2f})"
        return f"Grounding({len(self)} mentions: {lies}, {mass})"

    def _repr_html_(self) -> str:
        """For a notebook: a row for each name, those with most mentions first, and one for all."""
        counts = Counter(pointing.mention.name for pointing in self.pointings)
        rows = {
            name: Grounding(tuple(p for p in self.pointings if p.mention.name == name))
            for name, _ in counts.most_common()
        }
        table = AnalysisTable(("", "mentions", "pointing", "chance", "attention in boxes", "chance"))
        for name, part in [*rows.items(), ("all", self)]:
            shares = (part.accuracy, part.chance, part.mass, part.mass_chance)
            table.add([[name, len(part), *(f"{share:.2f}" for share in shares)]])
        if not self.pointings:
            table.rows = [[self.not_said, 0, *["–"] * 4]]
        return table.html()

    def plot(
        self, most: int = 12, *, images: Sequence[Photo] | None = None, **options: Unpack[OverlayOptions]
    ) -> Figure:
        """Draw the first mentions: the map over the photo, the boxes of the object, and the most attended cell.

        The title has the word, and whether the cell lies in a box. Each caption has a scale of its own.

        Args:
            most: mentions that are drawn.
            images: the photos of the captions, in the same order; by default those that the captions carry.
            options: see `plot_caption`.

        Raises:
            ValueError: there are no mentions, not one photo for each caption, or most is less than 1.
            caption.core.errors.ImageError: a photo cannot be opened.
        """
        from caption.data.photos import open_image
        from caption.visualize.layout import Page, add_axes, grid_of, new_figure
        from caption.visualize.overlay import overlay, photos_of
        from caption.visualize.styles import OverlayStyle

        pointings = self.pointings[: max(most, 0)]
        if not pointings:
            raise ValueError("there are no mentions to draw")
        photos = photos_of(self.measured, images)
        page = Page(grid_of(len(pointings), (1, 1), lines=0))
        fig = new_figure(page.size)
        for number, pointing in enumerate(pointings):
            ax = add_axes(fig, page.size, page.place(number))
            caption, word = self.measured[pointing.caption], pointing.mention.word
            weights = caption.weights[word]
            cell = np.unravel_index(int(weights.argmax()), weights.shape)
            overlay(
                ax, weights, caption.box, open_image(photos[pointing.caption]),
                OverlayStyle(**options).scale_of(caption.weights, signed=caption.properties.signed), seen=caption.seen,
                location=[int(place) for place in cell], boxes=pointing.mention.boxes, **options,
            )  # fmt: skip
            ax.set_title(f"{caption.words[word]}: {pointing.verdict}", fontsize=9, pad=3, parse_math=False)
        return fig

    def __len__(self) -> int:
        """Number of mentions."""
        return len(self.pointings)

    @property
    def accuracy(self) -> float:
        """Pointing accuracy: the mean hit; naming an object that is not there is a miss."""
        return self._mean("hit")

    @property
    def chance(self) -> float:
        """Accuracy expected of cells drawn uniformly, for the same mentions."""
        return self._mean("chance")

    @property
    def mass(self) -> float:
        """Mean share of attention inside the boxes."""
        return self._mean("mass")

    @property
    def mass_chance(self) -> float:
        """Mean share of a uniform map inside the boxes."""
        return self._mean("mass_chance")

    @property
    def present(self) -> Grounding:
        """Only the mentions of objects that the image shows, to judge attention apart from wrong words."""
        shown = tuple(pointing for pointing in self.pointings if pointing.mention.boxes)
        return Grounding(shown, self.measured)

    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the accuracy by percentile bootstrap over captions; (0, 1) of fewer than two."""
        if len(set(self.captions)) < 2:
            return 0.0, 1.0
        hits = estimate(self.values("hit"), self.captions)
        return hits.low, hits.high

    def values(self, field: str) -> np.ndarray:
        """(N,) one of the numbers of every `Pointing`, e.g. "hit" or "mass": for intervals and differences in
        `caption.metrics.significance`, with `captions` as the images."""
        return np.array([getattr(pointing, field) for pointing in self.pointings], dtype=np.float64)

    @property
    def captions(self) -> np.ndarray:
        """(N,) the caption of every mention."""
        return np.array([pointing.caption for pointing in self.pointings], dtype=np.int64)

    def to_dict(self) -> dict[str, float]:
        """The numbers by the names they are reported under."""
        return {
            "pointing_accuracy": self.accuracy,
            "pointing_chance": self.chance,
            "attention_in_box": self.mass,
            "attention_in_box_chance": self.mass_chance,
            "pointing_mentions": float(len(self)),
            "pointing_absent": float(len(self) - len(self.present)),
        }

    def _mean(self, field: str) -> float:
        return sum(getattr(pointing, field) for pointing in self.pointings) / max(len(self), 1)


def ground(captions: Iterable[tuple[Caption, Boxes]], tolerance: float = 0.0) -> Grounding:
    """Play the pointing game on every mention of every caption.

    Args:
        captions: each with the boxes of its image, in the pixels of its `box`.
        tolerance: pixels by which a maximum may miss a box and still count, for hits and their chance alike
            (Zhang et al. allow 15).

    Raises:
        DataError: a box is wrong, or most reach beyond their photos (`caption.data.box_faults`).
        ValueError: `tolerance` is negative.
        UserError: captions come without boxes.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance {tolerance} must be 0 or more pixels")
    boxed = list(captions)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in boxed):
        raise UserError("each caption comes with its boxes: give pairs (caption, boxes)")
    _check_boxes(boxed)
    return _grounding(boxed, tolerance)


def _check_boxes(captions: Sequence[tuple[Caption, Boxes]]) -> None:
    if fault := boxes_fault(
        (f"caption {number}", boxes, _extent(caption, boxes))
        for number, (caption, boxes) in enumerate(captions)
    ):
        raise DataError(f"the boxes of {fault}")


def _extent(caption: Caption, boxes: Boxes) -> BoxLike:
    """Where boxes may lie. The photo is opened only if one of them reaches beyond the part that the model has seen."""
    seen = caption.seen or caption.box
    is_seen = all(
        len(box) == 4 and box[0] >= seen[0] and box[1] >= seen[1] and box[2] <= seen[2] and box[3] <= seen[3]
        for several in boxes.values()
        for box in several
    )
    return seen if is_seen else caption.extent


def _grounding(captions: Iterable[tuple[Caption, Boxes]], tolerance: float = 0.0) -> Grounding:
    """The pointing game with boxes that have been checked."""
    pointings: list[Pointing] = []
    measured: list[Caption] = []
    unsaid: dict[str, None] = {}
    for number, (caption, boxes) in enumerate(captions):
        weights = caption.weights.astype(np.float64)
        mentions = find_mentions(caption.words, boxes)
        for mention in mentions:
            pointings.append(_point_at(number, mention, weights[mention.word], caption, tolerance))
        said = {mention.name for mention in mentions}
        unsaid.update((name, None) for name, several in boxes.items() if several and name not in said)
        measured.append(caption)
    return Grounding(tuple(pointings), tuple(measured), tuple(unsaid))


def best_map(captions: Sequence[tuple[Caption, Boxes]]) -> str:
    """The label of the single map, such as "layer 3 heads[5]", that points best; of several, the first.

    Args:
        captions: see `ground`; with the same maps.

    Raises:
        DataError: see `ground`; or the captions name no object that has a box.
    """
    grounding = ground(captions)
    if not len(grounding.present):
        raise DataError(f"no map points best: {grounding.not_said}")
    singles = [(caption.single_maps(), boxes) for caption, boxes in captions]
    labels = list(singles[0][0])
    return max(labels, key=lambda label: _grounding((maps[label], boxes) for maps, boxes in singles).accuracy)


def point(weights: np.ndarray, box: BoxLike) -> tuple[float, float]:
    """Centre (x, y), in pixels, of the cell where the map is greatest; of several, the first row by row.

    Args:
        weights: (rows, cols), one word's map.
        box: the part of the image that the grid covers.
    """
    weights = np.asarray(weights)
    row, col = np.unravel_index(int(weights.argmax()), weights.shape)
    rows, cols = weights.shape
    x, y = cell_centres(rows, cols, box)
    return float(x[col]), float(y[row])


def _point_at(
    number: int, mention: Mention, weights: np.ndarray, caption: Caption, tolerance: float
) -> Pointing:
    if not mention.boxes:
        return Pointing(number, mention, 0.0, 0.0, 0.0, 0.0)
    rows, cols = weights.shape
    inside = centres_inside(rows, cols, caption.box, mention.boxes, tolerance)
    cover = coverage(rows, cols, caption.box, mention.boxes, caption.seen)
    # Ties share the point: otherwise a uniform map would always point at the upper left corner.
    hit = inside[weights == weights.max()].mean()
    # Normalised, because a sentinel may take a share; negative weights point away from a region.
    positive = weights.clip(min=0)
    mass = (positive * cover).sum() / positive.sum() if positive.any() else 0.0
    return Pointing(number, mention, float(hit), float(inside.mean()), float(mass), float(cover.mean()))
