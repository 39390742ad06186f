"""The measured sections of docs/analysis.md. Every sentence that states a result is chosen by the numbers it states."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from caption.analysis.maps import change, entropy, measure_maps, unseen
from caption.analysis.means import Estimate, difference, estimate
from caption.data.shapes.scene import COLOURS
from caption.data.shapes.silhouettes import SHAPES
from tools.documents import table

if TYPE_CHECKING:
    from caption.analysis.agreement import Agreement
    from caption.analysis.faithfulness.curves import Erasure, Kind
    from caption.analysis.words import PerWord
    from tools.analyse.__main__ import Analysis

OBJECT_WORDS = frozenset(COLOURS) | frozenset(SHAPES)
KINDS = {"colours": frozenset(COLOURS), "shapes": frozenset(SHAPES)}
"""Naming words by what they may be exchanged with."""
CLASSES = {**KINDS, "relations": frozenset(("above", "below", "left", "right"))}
OWN, BLIND = "attention", "random"
SIGNS: dict[Kind, int] = {"deletion": -1, "insertion": 1}
"""Whether a large area speaks for an order."""
NEARLY = 0.9
"""Share of the way from random orders to the best one from which attention is called faithful."""
HIDDEN = 4
"""Regions after which the fall of log p is reported: about as many as one object covers."""
WAYS = {"removed": "Removed", "replaced": "Replaced by the mean region"}
STARTS = {
    True: "The LSTM of {} starts from a learned constant: all it knows of an image comes through attention.",
    False: "The LSTM of {} starts from the image: it knows something of the image before it attends.",
}


class Setting(NamedTuple):
    """How the numbers were made."""

    scenes: int
    sigma: float
    """Width of the centre prior."""
    threads: int
    picture: str
    """File name of the figure."""
    arguments: str = ""
    """The arguments of the command, which the page states."""


def write_report(
    analyses: Sequence[Analysis], agreements: Mapping[tuple[str, str], Agreement], setting: Setting
) -> dict[str, str]:
    """The sections by name.

    Args:
        analyses: of the models, each of which names objects of Shapes.
        agreements: of pairs of them, by their names.
        setting: how they were made.
    """
    orders = [f"{title}:\n\n{_orders(analyses, way)}" for way, title in WAYS.items()]
    return {
        "setting": _setting(analyses, setting),
        "summary": "\n".join([*map(_summary, analyses), *map(_agree, agreements, agreements.values())]),
        "grounding": _grounding(analyses),
        "maps": _maps(analyses),
        "faithfulness": "\n\n".join(
            [f"![Deletion and insertion curves of naming words]({setting.picture})", *orders]
        ),
        "classes": _classes(analyses),
        "permuted": _permuted(analyses),
        "exchanged": _exchanged(analyses),
        "agreement": _agreement(agreements) if agreements else "Only one model was given.",
    }


# -- sentences


def _setting(analyses: Sequence[Analysis], setting: Setting) -> str:
    threads = "1 thread" if setting.threads == 1 else f"{setting.threads} threads"
    lines = [f"{setting.scenes} scenes, by `python -m tools.analyse{setting.arguments}`."]
    for blind, sentence in STARTS.items():
        names = [analysis.name for analysis in analyses if analysis.starts_blind == blind]
        lines += [sentence.format(_listed(names))] if names else []
    log_l = measure_maps(analyses[0].captions)["attention_entropy_max"]
    taken = _listed([f"{analysis.seconds:.1f} s ({analysis.name})" for analysis in analyses])
    lines.append(f"log L = {log_l:.2f} nats; the centre prior has σ = {setting.sigma:.2f} of the side.")
    return "\n".join([*lines, f"Captions and pointing game took {taken} on {threads}."])


def _summary(analysis: Analysis) -> str:
    findings = (_points, _explains, _reads, _changes, _follows)
    return "\n".join([f"- **{analysis.name}**", *(f"  - {finding(analysis)}" for finding in findings)])


def _points(analysis: Analysis) -> str:
    own = analysis.groundings["its own maps"]
    ahead: list[str] = []
    not_ahead: list[str] = []
    for name, other in analysis.groundings.items():
        if other is not own:
            lead = difference(other.values("hit"), own.values("hit"), own.captions)
            (ahead if lead.low > 0 else not_ahead).append(f"{name} {other.accuracy:.3f}")
    said = f"It points at {_interval(estimate(own.values('hit'), own.captions))} of the objects it names"
    if not_ahead:
        verdict = "**it is not shown that it looks at what it names.**"
        return f"{said}, not significantly more than {_listed(not_ahead)}: {verdict}"
    return f"{said}; blind maps point at fewer: {_listed(ahead)}. **It looks at what it names.**"


def _explains(analysis: Analysis) -> str:
    """How far α goes from random orders to the best, in deletion and insertion under both ways of hiding."""
    ways: list[float] = []
    beaten = 0
    ahead = Counter[str]()
    for erasure in analysis.erasures.values():
        naming = erasure.only(OBJECT_WORDS)
        for kind, better in SIGNS.items():
            areas = {order: better * naming.area(kind, order) for order in naming.orders}
            means = {order: float(values.mean()) for order, values in areas.items()}
            room = max(means.values()) - means[BLIND]
            ways.append((means[OWN] - means[BLIND]) / room if room > 0 else 0.0)
            leads = {order: difference(areas[OWN], values, naming.images) for order, values in areas.items()}
            beaten += leads[BLIND].high < 0
            ahead.update(order for order, lead in leads.items() if lead.low > 0)
    shares = sorted({str(math.floor(100 * share + 1e-9)) for share in (min(ways), max(ways))}, key=float)
    if beaten < len(ways):
        some = "some" if beaten else "none"
        verdict = "**It is not shown that attention is the reason for these words**: "
        verdict += f"it beats chance in {some} of the tests."
    elif min(ways) < NEARLY:
        verdict = "**Attention is part of the reason for these words.**"
    else:
        verdict = "**For these words attention is faithful, as far as these tests go.**"
    naming = analysis.erasures["removed"].only(OBJECT_WORDS)
    own, blind = (_interval(estimate(naming.fall(order, HIDDEN), naming.images), 2) for order in (OWN, BLIND))
    better_ones = [f"{order} in {count}" for order, count in ahead.items()]
    return (
        f"Hiding its {HIDDEN} most attended of {naming.counts[-1]} regions lowers log p of a naming word by {own} "
        f"nats, hiding {HIDDEN} at random by {blind}. In the {len(ways)} tests (deletion and insertion, removed and "
        f"replaced) α goes {' to '.join(shares)} % of the way from a random order to the best one tried. {verdict} Significantly "
        f"ahead of it: {_listed(better_ones) if better_ones else 'none'}."
    )


def _reads(analysis: Analysis) -> str:
    """Which classes of words need the look at their step: those of which most lose half of p when nothing is read."""
    needing: list[str] = []
    knowing: list[str] = []
    for name, erasure in _by_class(analysis.erasures["removed"]).items():
        curve = erasure.curve("deletion", OWN)
        lost = estimate(curve[:, -1] < curve[:, 0] / 2, erasure.images)
        (needing if lost.mean > 0.5 else knowing).append(f"{name} ({_percent(lost)})")
    said = "With nothing to read at their step, more than half of the probability is lost by "
    said += f"most of the {_listed(needing)}" if needing else "most words of no class"
    if knowing:
        said += f", but not of the {_listed(knowing)}. **The look at their step is not the main reason for the latter**"
        said += ", however sharp the map: the words before and the state suffice"
    return said + "."


def _changes(analysis: Analysis) -> str:
    naming = analysis.permutation.only(OBJECT_WORDS)
    permuted, uniform = (
        _percent(estimate(naming.changed[name], naming.images)) for name in ("permuted", "uniform")
    )
    return (
        f"With α permuted, another word becomes the most probable at {permuted} of the naming words; with uniform α "
        f"at {uniform}."
    )


def _follows(analysis: Analysis) -> str:
    """Whether the word whose map was given is said: more often than with that map permuted, and mostly."""
    told: list[str] = []
    beyond, mostly = [], []
    for kind, exchanged in analysis.exchanges.items():
        if not len(exchanged):
            continue
        placed, permuted = (exchanged.follows[name] for name in ("of the other", "of the other, permuted"))
        share, blind = (estimate(values, exchanged.images) for values in (placed, permuted))
        told.append(f"{kind} {_percent(share)} (that map permuted: {_percent(blind)})")
        beyond.append(difference(permuted, placed, exchanged.images).low > 0)
        mostly.append(share.low > 0.5)
    if not told:
        return "No caption has two different colours or shapes whose maps could be exchanged."
    if all(beyond) and all(mostly):
        verdict = "**The word follows the look.**"
    elif any(beyond):
        verdict = "**The word follows the look only in part.**"
    else:
        verdict = "**It is not shown that the word follows the look.**"
    said = "Given the map of another word of its kind in the same caption, a word becomes exactly that word: "
    return f"{said}{_listed(told)}. {verdict}"


def _agree(names: tuple[str, str], agreement: Agreement) -> str:
    naming = agreement.only(OBJECT_WORDS)
    same, blind = (
        _percent(_known(values["same cell"], naming)) for values in (naming.measures, naming.other_image)
    )
    return (
        f"- **{names[0]} and {names[1]}** have their maximum in the same cell at {same} of the naming words; with maps "
        f"of another image it would be {blind}."
    )


# -- tables


def _grounding(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        for name, grounding in analysis.groundings.items():
            hit, mass = (estimate(grounding.values(field), grounding.captions) for field in ("hit", "mass"))
            rows.append((analysis.name, name, _interval(hit), _interval(mass)))
    return table(("model", "maps", "pointing accuracy", "mass in the box"), rows)


def _maps(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        maps = [caption.weights for caption in analysis.captions]
        measured = [_over_captions(measure, maps) for measure in (entropy, change)]
        left_out = _over_captions(lambda weights: np.array([unseen(weights)] if len(weights) else []), maps)
        rows.append((analysis.name, *(_interval(of, 2) for of in measured), _percent(left_out)))
    return table(("model", "H[α]", "change", "hardly looked at"), rows)


def _orders(analyses: Sequence[Analysis], way: str) -> str:
    rows = []
    for analysis in analyses:
        naming = analysis.erasures[way].only(OBJECT_WORDS)
        for order in naming.orders:
            areas = [_interval(estimate(naming.area(kind, order), naming.images)) for kind in SIGNS]
            fall = _interval(estimate(naming.fall(order, HIDDEN), naming.images), 2)
            rows.append((analysis.name, "**α**" if order == OWN else order, *areas, fall))
    return table(("model", "order", "area, deletion", "area, insertion", f"fall after {HIDDEN}"), rows)


def _classes(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        for name, erasure in _by_class(analysis.erasures["removed"]).items():
            curve = erasure.curve("deletion", OWN)
            areas = [erasure.area("deletion", order) for order in (OWN, BLIND)]
            values = (curve[:, 0], curve[:, -1], *areas)
            cells = [_interval(estimate(of, erasure.images)) for of in values]
            rows.append((analysis.name, f"{name} ({len(erasure)})", *cells))
    head = ("model", "words", "p, all to read", "p, nothing to read", "area by α", "area at random")
    return table(head, rows)


def _permuted(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        of = analysis.permutation.only(OBJECT_WORDS)
        for name in of.falls:
            fall, distance, changed = (_known(all[name], of) for all in (of.falls, of.distances, of.changed))
            rows.append((analysis.name, name, _interval(fall, 2), _interval(distance), _percent(changed)))
    return table(("model", "weights", "fall", "distance", "changed"), rows)


def _exchanged(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        for kind, of in analysis.exchanges.items():
            for name in of.follows if len(of) else ():
                follows, stays, leads = (
                    estimate(measured[name], of.images) for measured in (of.follows, of.stays, of.leads)
                )
                cells = (_percent(follows), _percent(stays), _interval(leads, 2))
                rows.append((analysis.name, f"{kind} ({len(of)})", name, *cells))
    return table(
        ("model", "pairs", "weights", "the other word", "the word itself", "lead of the other"), rows
    )


def _agreement(agreements: Mapping[tuple[str, str], Agreement]) -> str:
    rows = []
    for names, agreement in agreements.items():
        for title, part in (("all", agreement), ("naming", agreement.only(OBJECT_WORDS))):
            for name in part.measures:
                of = [_known(maps[name], part) for maps in (part.measures, part.other_word, part.other_image)]
                rows.append((" / ".join(names), title, name, *map(_interval, of)))
    return table(("models", "words", "measure", "same word", "other word", "other image"), rows)


def _over_captions(measure: Callable[[np.ndarray], np.ndarray], maps: Sequence[np.ndarray]) -> Estimate:
    """The mean of a measure that gives any number of values for the maps of a caption."""
    values = [measure(weights) for weights in maps]
    return estimate(np.concatenate(values), np.repeat(np.arange(len(maps)), [len(of) for of in values]))


def _by_class(erasure: Erasure) -> dict[str, Erasure]:
    classes = {name: erasure.only(words) for name, words in CLASSES.items()}
    classes["other words"] = erasure.only(set(erasure.words).difference(*CLASSES.values()))
    return {name: part for name, part in classes.items() if len(part)}


def _known(values: np.ndarray, part: PerWord) -> Estimate:
    """The mean of what could be measured: a caption of one word has no other word."""
    known = ~np.isnan(values)
    return estimate(values[known], part.images[known])


def _interval(of: Estimate, digits: int = 3) -> str:
    return f"{of.mean:.{digits}f} [{of.low:.{digits}f}, {of.high:.{digits}f}]"


def _percent(of: Estimate) -> str:
    return f"{100 * of.mean:.0f} % [{100 * of.low:.0f}, {100 * of.high:.0f}]"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
