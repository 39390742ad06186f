"""Which differences from additive attention are larger than the spread between seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from tools.compare_attention.mechanisms import REFERENCE, Mechanism, by_family
from tools.documents import table as markdown_table

COMPARED = {
    "NLL": ("NLL", 3),
    "BLEU-4": ("BLEU-4", 3),
    "pointing_accuracy": ("pointing", 3),
    "attention_entropy": ("entropy", 2),
}
"""Scores by name: the column's head, and decimals."""
QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
"""Of Student's t: 97.5 % by degrees of freedom."""


class Gap(NamedTuple):
    """A difference of means over seeds, with its 95 % interval."""

    difference: float
    low: float
    high: float

    def text(self, digits: int) -> str:
        """The difference with its interval in brackets; bold if the interval leaves out 0."""
        text = f"{self.difference:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"
        clear = self.low > 0 or self.high < 0
        return f"**{text}**".replace("-", "−") if clear else text.replace("-", "−")


def gap(values: Sequence[float], others: Sequence[float]) -> Gap | None:
    """Mean of `values` less mean of `others`; None unless both have two seeds or more.

    Welch's interval with the fewest degrees of freedom that his formula allows, one less than the smaller number of
    seeds, which makes it wide rather than narrow.
    """
    fewest = min(len(values), len(others))
    if fewest < 2:
        return None
    difference = statistics.mean(values) - statistics.mean(others)
    error = math.sqrt(sum(statistics.variance(sample) / len(sample) for sample in (values, others)))
    half = QUANTILES[min(fewest - 1, max(QUANTILES))] * error
    return Gap(difference, difference - half, difference + half)


def differences(summaries: Mapping[str, dict[str, Any]], mechanisms: Mapping[str, Mechanism]) -> str:
    """Markdown: each mechanism less additive attention, and whether its maps depend on the word; families together."""
    reference = summaries.get(REFERENCE)
    if reference is None:
        return f"`{REFERENCE}` has not been run, with which the others would be compared."
    if all(len(summary["runs"]) == 1 for summary in summaries.values()):
        return "None can be given: there is one seed of each."
    rows = []
    for name in chain(*by_family(summaries, mechanisms).values()):
        summary = summaries[name]
        cells = [
            _cell(gap(by_seed(summary, key), by_seed(reference, key)), digits)
            for key, (_, digits) in COMPARED.items()
        ]
        if name == REFERENCE:
            cells = ["(reference)"] * len(cells)
        own_map = gap(by_seed(summary, "pointing_accuracy"), by_seed(summary, "pointing_other_word"))
        rows.append([f"`{name}`", *cells, _cell(own_map, 3)])
    head = ["mechanism", *(f"Δ {head}" for head, _ in COMPARED.values()), "pointing − other word's map"]
    seeds = {len(summary["runs"]) for summary in summaries.values()}
    count = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else str(*seeds)
    return "\n\n".join(
        [
            f"Each mechanism less `{REFERENCE}`: difference of means over seeds ({count} each) and its 95 % interval "
            "(Welch, with the fewest degrees of freedom). **Bold**: the interval leaves out 0. A dash: one seed alone, "
            "or no map. The last column says whether a word's own map points better than another word's map of the "
            "same caption.",
            markdown_table(head, rows),
        ]
    )


def by_seed(summary: dict[str, Any], key: str) -> list[float]:
    """A score of each seed; without those that have no such score."""
    return [run["numbers"][key] for run in summary["runs"] if key in run["numbers"]]


def _cell(gap: Gap | None, digits: int) -> str:
    return "–" if gap is None else gap.text(digits)
