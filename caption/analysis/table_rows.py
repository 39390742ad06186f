"""Rows of the tables that tell of models: each measure as a mean with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from caption.analysis.agreement import Agreement
from caption.analysis.faithfulness.curves import FaithfulnessCurves, Kind
from caption.analysis.faithfulness.permutation import Permutation
from caption.analysis.map_statistics import changes, entropies, unseen
from caption.analysis.named_groups import wilson
from caption.analysis.per_word import PerWord
from caption.analysis.pointing_game import Grounding
from caption.metrics.significance import Estimate, estimate
from caption.result import Caption

OWN, BLIND = "attention", "random"
CURVES: tuple[Kind, ...] = ("deletion", "insertion")
UNKNOWN = Estimate(math.nan, math.nan, math.nan)


class Value(NamedTuple):
    """A mean with its 95 % interval, as a cell of a table; "–" where it is NaN."""

    of: Estimate
    digits: int = 3
    is_share: bool = False
    """Written in per cent."""

    def __str__(self) -> str:
        if math.isnan(self.of.mean):
            return "–"
        if self.is_share:
            return f"{100 * self.of.mean:.0f} % [{100 * self.of.low:.0f}, {100 * self.of.high:.0f}]"
        return (
            f"{self.of.mean:.{self.digits}f} [{self.of.low:.{self.digits}f}, {self.of.high:.{self.digits}f}]"
        )


Cell = str | int | Value
Rows = Iterator[list[Cell]]


def share(of: Estimate) -> Value:
    return Value(of, is_share=True)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def grounding_values(grounding: Grounding, images: np.ndarray | None = None) -> list[Value]:
    """Pointing accuracy and mass in the box.

    Args:
        grounding: measured.
        images: the image of every mention; None = each caption is of its own.
    """
    images = grounding.captions if images is None else images
    return [Value(estimate(grounding.values(field), images)) for field in ("hit", "mass")]


def map_values(captions: Sequence[Caption]) -> list[Value]:
    """H[α] in nats, the share of α that moves from word to word, and the share of regions hardly looked at."""
    measured = [Value(over_captions(of, captions), 2) for of in (entropies, changes)]
    with_words = [caption for caption in captions if caption.words]
    return [*measured, share(over_captions(lambda caption: np.array([unseen(caption)]), with_words))]


def order_rows(curves: FaithfulnessCurves, hidden: int | None = None) -> Rows:
    """A row for every order: areas under both curves; and the fall of log p after so many regions."""
    for order in curves.orders:
        areas = [Value(estimate(curves.area(kind, order), curves.images)) for kind in CURVES]
        falls = [] if hidden is None else [Value(estimate(curves.fall(order, hidden), curves.images), 2)]
        yield [order, *areas, *falls]


def permutation_rows(permutation: Permutation) -> Rows:
    """A row for every kind of other maps: the fall of log p, the distance, how often the best word changes."""
    for name in permutation.falls:
        measures = (permutation.falls, permutation.distances, permutation.changed)
        fall, distance, changed = (known(measure[name], permutation) for measure in measures)
        yield [name, Value(fall, 2), Value(distance), share(changed)]


def agreement_rows(agreement: Agreement) -> Rows:
    """A row for every measure: of the same word, with another word, with another image."""
    for name in agreement.measures:
        maps = (agreement.measures, agreement.other_word, agreement.other_image)
        yield [name, *(Value(known(of[name], agreement)) for of in maps)]


def named_rows(counts: Mapping[str, tuple[int, Mapping[str, int]]]) -> Rows:
    """A row for every group of `named_groups.count`: the images, and how often their captions name each group."""
    for group, (images, says) in counts.items():
        yield [group, images, *(share_of(number, images) if images else "–" for number in says.values())]


def share_of(number: int, of: int) -> Value:
    """A share with Wilson's interval."""
    return share(Estimate(number / of, *wilson(number, of)))


def over_captions(measure: Callable[[Caption], np.ndarray], captions: Sequence[Caption]) -> Estimate:
    """The mean of a measure that gives any number of values for a caption; NaN if it gives none at all."""
    values = [measure(caption) for caption in captions]
    images = np.repeat(np.arange(len(captions)), [len(of) for of in values])
    return estimate(np.concatenate(values), images) if len(images) else UNKNOWN


def known(values: np.ndarray, part: PerWord) -> Estimate:
    """The mean of what could be measured: a caption of one word has no other word. NaN if nothing could."""
    measured = ~np.isnan(values)
    return estimate(values[measured], part.images[measured]) if measured.any() else UNKNOWN
