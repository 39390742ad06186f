"""What the table teaches, in a few sentences whose claims all have intervals: the first screen of docs/attention.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tools.compare_attention.differences import Gap, gap, seeds_of
from tools.compare_attention.mechanisms import WARM as REFERENCE

Summaries = Mapping[str, dict[str, Any]]

SHOWN = 6
"""Mechanisms that a list names with their intervals; the tables have the others."""
MARGIN = 0.05
"""A mechanism whose whole interval lies above minus this points no worse."""
APART = 0.3
"""Two seeds of one mechanism whose pointing accuracies differ by more look in different ways."""
SEEDS = 3
"""Fewest of a mechanism that is compared: with two, an interval is twelve standard errors to each side."""


def lessons(summaries: Summaries) -> str:
    """The Markdown of the section: describing, looking at what is named, depending on what is looked at.

    Every list is made by a rule from intervals of 95 %, so that a new run changes the text. Claims that need the spread
    between seeds are left out until there are enough.
    """
    if REFERENCE not in summaries:
        return f"`{REFERENCE}` has not been run, with which the others are compared."
    enough = {name: found for name, found in summaries.items() if len(found["runs"]) >= SEEDS}
    if REFERENCE not in enough:
        note = (
            f"Scores of single seeds are not compared here: that waits for {SEEDS} seeds. Their spread is not known "
            "yet, and small differences in the table mean nothing."
        )
        return f"{_depending(summaries)}\n\n{note}"
    return "\n\n".join(
        [_describing(enough), _looking(enough), _by_seed(enough), _depending(summaries), _seeming(enough)]
    )


def _describing(summaries: Summaries) -> str:
    gaps = {name: found for name in summaries if (found := _against_reference(summaries, name, "NLL"))}
    better = sorted((name for name in gaps if gaps[name].high < 0), key=lambda name: gaps[name].difference)
    worse = sorted((name for name in gaps if gaps[name].low > 0), key=lambda name: -gaps[name].difference)
    same = [name for name in gaps if not gaps[name].clear]
    return (
        f"**Which differences are larger than the spread between seeds?** In NLL, compared with `{REFERENCE}`: "
        f"{len(worse)} of {len(gaps)} mechanisms are worse, most of all {_listed(worse, gaps)}. "
        f"{len(better)} are better{': ' + _listed(better, gaps) if better else ''}. {len(same)} cannot be told apart "
        f"from it. By chance alone, about {len(gaps) * 0.05:.0f} of {len(gaps)} such intervals would leave out 0: a "
        "small difference that is just clear proves little."
    )


def _looking(summaries: Summaries) -> str:
    gaps = {
        name: found
        for name, each in summaries.items()
        if (found := gap(seeds_of(each, "pointing_accuracy"), seeds_of(each, "pointing_other_word")))
    }
    looking = sorted((name for name in gaps if gaps[name].low > 0), key=lambda name: -gaps[name].difference)
    not_looking = [name for name in gaps if gaps[name].low <= 0]
    text = (
        "**Which look at what they name?** Those whose map of a word points at its object more often than the map of "
        f"another word of the same caption does: {len(looking)} of {len(gaps)}, most of all {_listed(looking, gaps)}."
    )
    if not_looking:
        text += (
            " For the others the word makes no clear difference, or the seeds disagree: "
            f"{', '.join(f'`{name}`' for name in not_looking)}."
        )
    return text


def _by_seed(summaries: Summaries) -> str:
    ranges = {name: sorted(seeds_of(each, "pointing_accuracy")) for name, each in summaries.items()}
    apart = sorted(
        (name for name, found in ranges.items() if found and found[-1] - found[0] > APART),
        key=lambda name: ranges[name][0] - ranges[name][-1],
    )
    text = (
        "**For which does the seed decide where they look?** Pointing accuracies of the seeds lie more than "
        f"{APART} apart for {len(apart)} of {sum(map(bool, ranges.values()))}"
    )
    each = ", ".join(f"`{name}` {' / '.join(f'{value:.2f}' for value in ranges[name])}" for name in apart)
    return f"{text}: {each}. A single training of one of these says little about it." if apart else f"{text}."


def _depending(summaries: Summaries) -> str:
    gains = _gains(summaries)
    faithful = sorted(
        (name for name in gains if gains[name].low > 0), key=lambda name: -gains[name].difference
    )
    others = [name for name in gains if gains[name].low <= 0]
    text = (
        "**Which are faithful?** When regions lose their weight in the order of attention, a word's probability should "
        f"fall faster than in a random order. It does for {len(faithful)} of {len(gains)}, most of all for "
        f"{_listed(faithful, gains)}."
    )
    if others:
        text += f" It does not for {_listed(others, gains)}."
    return text


def _seeming(summaries: Summaries) -> str:
    gains = _gains(summaries)
    reference = gains[REFERENCE]
    seeming = []
    for name, gain in gains.items():
        points = _against_reference(summaries, name, "pointing_accuracy")
        if points is not None and points.low > -MARGIN and gain.high < reference.low:
            seeming.append(name)
    seeming.sort(key=lambda name: gains[name].difference)
    text = (
        f"**Which only seem to be?** Those that point no worse than `{REFERENCE}` (by {MARGIN} at most, with the whole "
        "interval), but whose words depend less on where they look (random − attention below "
        f"{reference.low:.3f}, the lower end of its interval): "
    )
    return text + (f"{len(seeming)}, most of all {_listed(seeming, gains)}." if seeming else "none.")


def _against_reference(summaries: Summaries, name: str, key: str) -> Gap | None:
    if name == REFERENCE:
        return None
    return gap(seeds_of(summaries[name], key), seeds_of(summaries[REFERENCE], key))


def _gains(summaries: Summaries) -> dict[str, Gap]:
    """Random less attention of each mechanism that has maps."""
    found = {name: each["faithfulness"] for name, each in summaries.items()}
    return {
        name: Gap(areas["random_less_attention"], areas["low"], areas["high"])
        for name, areas in found.items()
        if areas is not None
    }


def _listed(names: Iterable[str], gaps: Mapping[str, Gap]) -> str:
    return ", ".join(f"`{name}` {gaps[name].text(3)}" for name in list(names)[:SHOWN])
