"""The gallery of docs/results/attention.md, and its verdicts: what the numbers say of all mechanisms together."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from caption.cli.configs import FAMILIES
from tools.compare_attention.differences import Gap, by_seed, gap
from tools.compare_attention.mechanisms import REFERENCE, Mechanism, by_family
from tools.documents import table as markdown_table

APART = 0.3
"""Mechanisms whose pointing differs by more between seeds are named."""
NEAR = 0.05
"""Pointing that is lower by no more counts as no worse."""
LEAST = 5
"""How many of those that point without being faithful are named."""
ONE_SEED = (
    "- **One seed of each.** Which differences are larger than those between seeds is not known: of two mechanisms "
    "with a small difference in NLL or pointing none is better."
)
Summary = dict[str, Any]


def picture(document: Path, kin: str) -> Path:
    """The picture of a family, beside the document."""
    return document.with_name(f"{document.stem}_{kin.replace(' ', '_').replace('-', '_')}.png")


def gallery(mechanisms: Mapping[str, Mechanism], document: Path) -> str:
    """Markdown: of each family its picture, if there is one, and of each mechanism one line and its command."""
    blocks = []
    for kin, members in by_family(mechanisms, mechanisms).items():
        idea, drawn = FAMILIES.get(kin, ""), picture(document, kin)
        blocks.append(f"### {kin.capitalize() or 'Others'}")
        blocks += [f"{idea[0].upper()}{idea[1:]}."] if idea else []
        blocks += [f"![Where the mechanisms of the family look]({drawn.name})"] if drawn.exists() else []
        rows = []
        for name in members:
            command = f"`caption fit -c {mechanisms[name].paths[0].stem} -c attention/{name}`"
            rows.append([f"`{name}`", mechanisms[name].title.replace("|", "\\|"), command])
        blocks.append(markdown_table(["mechanism", "in one line", "train it"], rows))
    return "\n\n".join(blocks)


def verdicts(summaries: Mapping[str, Summary]) -> str:
    """Markdown: how many differ from additive attention, point, depend on the seed, and are faithful."""
    reference = summaries.get(REFERENCE)
    if reference is None:
        return f"`{REFERENCE}` has not been run, with which the others would be compared."
    others = {name: summary for name, summary in summaries.items() if name != REFERENCE}
    gains = {
        name: Gap(areas["random_less_attention"], areas["low"], areas["high"])
        for name, summary in others.items()
        if (areas := summary["faithfulness"])
    }
    several = any(len(summary["runs"]) > 1 for summary in summaries.values())
    of_seeds = (
        [_likelihood(others, reference), _pointing(others), _seeds(summaries)] if several else [ONE_SEED]
    )
    return "\n".join([*of_seeds, _faithfulness(gains), *_pointing_alone(others, gains, reference)])


def _likelihood(others: Mapping[str, Summary], reference: Summary) -> str:
    gaps = _gaps(others, lambda summary: gap(by_seed(summary, "NLL"), by_seed(reference, "NLL")))
    worse = {name: each for name, each in gaps.items() if each.low > 0}
    better = {name: each for name, each in gaps.items() if each.high < 0}
    count, same = len(gaps), len(gaps) - len(worse) - len(better)
    return (
        f"- **NLL**, against `{REFERENCE}`: {len(worse)} of {count} mechanisms are worse{_most(worse, 2)}; "
        f"{f'better are {_named(better)}' if better else 'none is better'}; {same} cannot be told apart from it. By "
        f"chance alone, about {0.05 * count:.0f} of {count} intervals would leave out 0."
    )


def _pointing(others: Mapping[str, Summary]) -> str:
    gaps = _gaps(
        others,
        lambda summary: gap(by_seed(summary, "pointing_accuracy"), by_seed(summary, "pointing_other_word")),
    )
    clear = {name: each for name, each in gaps.items() if each.low > 0}
    return (
        "- **Pointing.** The map of a word points at its object more often than the map of another word does for "
        f"{len(clear)} of {len(gaps)}{_most(clear, 3)}."
    )


def _seeds(summaries: Mapping[str, Summary]) -> str:
    seeds = {name: sorted(by_seed(summary, "pointing_accuracy")) for name, summary in summaries.items()}
    wide = [
        f"`{name}` ({' / '.join(f'{value:.2f}' for value in own)})"
        for name, own in seeds.items()
        if own and own[-1] - own[0] > APART
    ]
    return (
        f"- **Seeds.** Pointing accuracies of the seeds lie more than {APART} apart for {len(wide)} of {len(seeds)}"
        f"{': ' * bool(wide)}{', '.join(wide)}."
    )


def _faithfulness(gains: Mapping[str, Gap]) -> str:
    clear = {name: each for name, each in gains.items() if each.low > 0}
    rest = ", ".join(f"`{name}`" for name in gains if name not in clear)
    return (
        "- **Faithfulness.** When regions lose their weight in the order of attention, a word's probability falls "
        f"faster than in a random order for {len(clear)} of {len(gains)}{_most(clear, 3)}."
        f"{f' It does not for {rest}.' if rest else ''}"
    )


def _pointing_alone(others: Mapping[str, Summary], gains: Mapping[str, Gap], reference: Summary) -> list[str]:
    own, pointing = reference["faithfulness"], by_seed(reference, "pointing_accuracy")
    if not own or not pointing:
        return []
    least = statistics.mean(pointing) - NEAR
    weak = {
        name: each
        for name, each in sorted(gains.items(), key=lambda entry: entry[1].difference)
        if each.high < own["low"]
        and statistics.mean(by_seed(others[name], "pointing_accuracy") or [0.0]) >= least
    }
    return [
        f"- **Pointing without faithfulness.** {len(weak)} point no worse than `{REFERENCE}` (by {NEAR} at most), but "
        f"their words depend less on where they look (below {own['low']:.3f})"
        f"{', least of all ' * bool(weak)}{_named(dict(islice(weak.items(), LEAST)))}."
    ]


def _gaps(summaries: Mapping[str, Summary], measure: Callable[[Summary], Gap | None]) -> dict[str, Gap]:
    return {name: found for name, summary in summaries.items() if (found := measure(summary)) is not None}


def _most(gaps: Mapping[str, Gap], count: int) -> str:
    """The largest ones."""
    largest = dict(sorted(gaps.items(), key=lambda entry: -entry[1].difference)[:count])
    return f", most of all {_named(largest)}" if gaps else ""


def _named(gaps: Mapping[str, Gap]) -> str:
    return ", ".join(f"`{name}` {each.text(3).strip('*')}" for name, each in gaps.items())
