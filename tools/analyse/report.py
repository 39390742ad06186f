"""The text of docs/analysis.md. Every sentence that tells a result is chosen by the numbers that it tells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from analyse_text import (
    AGREE,
    BY_CLASS,
    EXCHANGED,
    FAITHFUL,
    GROUNDING,
    HEAD,
    LIMITS,
    MAPS,
    PERMUTED,
    STARTS,
)

from caption.analysis.maps import UNSEEN, change, entropy, measure_maps, unseen
from caption.analysis.means import Estimate, difference, estimate
from caption.data.shapes.scene import COLOURS
from caption.data.shapes.silhouettes import SHAPES

if TYPE_CHECKING:
    from analyse import Analysis

    from caption.analysis.agreement import Agreement
    from caption.analysis.faithfulness.curves import Erasure, Kind
    from caption.analysis.words import PerWord

RELATIONS = frozenset(("above", "below", "left", "right"))
OBJECT_WORDS = frozenset(COLOURS) | frozenset(SHAPES)
KINDS = {"colours": frozenset(COLOURS), "shapes": frozenset(SHAPES)}
"""Naming words by what may stand for each other."""
CLASSES = {**KINDS, "relations": RELATIONS}
OWN, BLIND = "attention", "random"
SIGNS: dict[Kind, int] = {"deletion": -1, "insertion": 1}
"""What a large area says for an order."""
NEARLY = 0.9
"""Of the way from random orders to the best one: what is called faithful."""
HIDDEN = 4
"""Regions after which the fall of log p is told: about as many as one object covers."""
WAYS = {"removed": "Removed", "replaced": "Replaced by the mean region"}


class Setting(NamedTuple):
    """How the numbers were made."""

    scenes: int
    sigma: float
    """Of the centre prior."""
    threads: int
    picture: str
    """File name of the figure."""
    arguments: str = ""
    """What the tool was called with, for the page to say."""


def write_report(
    analyses: Sequence[Analysis], agreements: Mapping[tuple[str, str], Agreement], setting: Setting
) -> str:
    """The page.

    Args:
        analyses: of the models, each of which names objects of Shapes.
        agreements: of pairs of them, by their names.
        setting: how they were made.
    """
    parts = [HEAD.format(scenes=setting.scenes, arguments=setting.arguments, starts=_starts(analyses))]
    for analysis in analyses:
        parts += [_in_short(analysis)]
    parts += [_agreement_in_short(agreements)] if agreements else []
    parts += [GROUNDING.format(sigma=setting.sigma, speed=_speed(analyses, setting)), _grounding(analyses)]
    most = measure_maps(analyses[0].captions)["attention_entropy_max"]
    parts += [MAPS.format(most=most, unseen=UNSEEN), _maps(analyses)]
    parts += [FAITHFUL.format(picture=setting.picture, hidden=HIDDEN, nearly=round(100 * NEARLY))]
    for way, title in WAYS.items():
        parts += [f"\n{title}:\n", _orders(analyses, way)]
    parts += [BY_CLASS, _classes(analyses), PERMUTED, _permuted(analyses), EXCHANGED, _exchanged(analyses)]
    parts += [AGREE, _agreement(agreements)] if agreements else []
    return "\n".join([part.rstrip("\n") if part.startswith("|") else part for part in parts]) + "\n" + LIMITS


def _starts(analyses: Sequence[Analysis]) -> str:
    """What the models know of an image before they look."""
    blind = [analysis.name for analysis in analyses if analysis.starts_blind]
    told = [analysis.name for analysis in analyses if not analysis.starts_blind]
    return "\n".join(
        STARTS[how].format(names=_listed(names)) for how, names in (("blind", blind), ("told", told)) if names
    )


def _speed(analyses: Sequence[Analysis], setting: Setting) -> str:
    seconds = _listed([f"{analysis.seconds:.1f} s ({analysis.name})" for analysis in analyses])
    threads = "1 thread" if setting.threads == 1 else f"{setting.threads} threads"
    return f"{seconds} on {threads}"


def _in_short(analysis: Analysis) -> str:
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
        return f"{said}, not surely more than {_listed(not_ahead)}: **that it looks at what it names is not shown.**"
    return f"{said}; blind maps point at less: {_listed(ahead)}. **It looks at what it names.**"


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
        some = "not in all" if beaten else "in none"
        verdict = f"**That attention is the reason for these words is not shown**: it beats chance {some} of the tests."
    elif min(ways) < NEARLY:
        verdict = "**Attention tells part of the reason for these words.**"
    else:
        verdict = "**For these words attention is faithful as far as these tests go.**"
    naming = analysis.erasures["removed"].only(OBJECT_WORDS)
    own_fall, blind_fall = (
        _interval(estimate(naming.fall(order, HIDDEN), naming.images), 2) for order in (OWN, BLIND)
    )
    better_ones = [f"{order} in {count}" for order, count in ahead.items()]
    return (
        f"Hiding its {HIDDEN} most attended of {naming.counts[-1]} regions takes {own_fall} nats from a naming word, "
        f"{HIDDEN} at random {blind_fall}. In the {len(ways)} tests (deletion and insertion, removed and replaced) α "
        f"goes {' to '.join(shares)} % of the way from a random order to the best one tried. {verdict} Ahead of it, by "
        f"however little: {_listed(better_ones) if better_ones else 'none'}."
    )


def _reads(analysis: Analysis) -> str:
    """Which classes of words need their look at all: most of whose words lose half of p when nothing is read."""
    needing: list[str] = []
    knowing: list[str] = []
    for name, erasure in _by_class(analysis.erasures["removed"]).items():
        curve = erasure.curve("deletion", OWN)
        lost = estimate(curve[:, -1] < curve[:, 0] / 2, erasure.images)
        (needing if lost.mean > 0.5 else knowing).append(f"{name} ({_percent(lost)})")
    said = "Read nothing at their step, and more than half of their probability is lost by "
    said += f"most of the {_listed(needing)}" if needing else "most words of no class"
    if knowing:
        said += (
            f", but not of the {_listed(knowing)}. **For the words that lose less, the look at their step is not the "
            "main reason**, however sharp the map: the words before and the state would do"
        )
    return said + "."


def _changes(analysis: Analysis) -> str:
    naming = analysis.permutation.only(OBJECT_WORDS)
    changed, even = (estimate(naming.changed[name], naming.images) for name in ("permuted", "uniform"))
    return (
        f"With α permuted, another word becomes the likeliest in {_percent(changed)} of the naming words; with "
        f"uniform α in {_percent(even)}."
    )


def _follows(analysis: Analysis) -> str:
    """Whether exactly that word comes whose map was given: more often than by its permutation, and mostly."""
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
        verdict = "**What is named follows where it looks.**"
    elif any(beyond):
        verdict = "**What is named follows where it looks only in part.**"
    else:
        verdict = "**That what is named follows where it looks is not shown.**"
    said = "Given the map of another word of its kind in the same caption, a word becomes exactly that word: "
    return f"{said}{_listed(told)}. {verdict}"


def _agreement_in_short(agreements: Mapping[tuple[str, str], Agreement]) -> str:
    lines = []
    for (first, second), agreement in agreements.items():
        naming = agreement.only(OBJECT_WORDS)
        same, other = naming.measures["same cell"], naming.other_image["same cell"]
        shared, blind = (_percent(_known(values, naming)) for values in (same, other))
        lines.append(
            f"- **{first} and {second}** have their maximum in the same cell at {shared} of the naming words; with "
            f"maps of another image it would be {blind}."
        )
    return "\n".join(lines)


def _grounding(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        for name, grounding in analysis.groundings.items():
            hit, mass = (estimate(grounding.values(field), grounding.captions) for field in ("hit", "mass"))
            rows.append((analysis.name, name, _interval(hit), _interval(mass)))
    return _table(("model", "maps", "pointing accuracy", "mass in the box"), rows)


def _maps(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        maps = [caption.weights for caption in analysis.captions]
        measured = [_over_captions(measure, maps) for measure in (entropy, change)]
        shares = [(image, unseen(weights)) for image, weights in enumerate(maps) if len(weights)]
        left_out = estimate([share for _, share in shares], [image for image, _ in shares])
        rows.append((analysis.name, *(_interval(of, 2) for of in measured), _percent(left_out)))
    return _table(("model", "H[α]", "change", "hardly looked at"), rows)


def _orders(analyses: Sequence[Analysis], way: str) -> str:
    rows = []
    for analysis in analyses:
        naming = analysis.erasures[way].only(OBJECT_WORDS)
        for order in naming.orders:
            measured = [
                naming.area("deletion", order),
                naming.area("insertion", order),
                naming.fall(order, HIDDEN),
            ]
            deletion, insertion, fall = (estimate(values, naming.images) for values in measured)
            name = "**α**" if order == OWN else order
            rows.append((analysis.name, name, _interval(deletion), _interval(insertion), _interval(fall, 2)))
    return _table(("model", "order", "area, deletion", "area, insertion", f"fall after {HIDDEN}"), rows)


def _classes(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        for name, erasure in _by_class(analysis.erasures["removed"]).items():
            curve = erasure.curve("deletion", OWN)
            told, blind = (estimate(curve[:, end], erasure.images) for end in (0, -1))
            areas = (
                estimate(erasure.area("deletion", order), erasure.images) for order in ("attention", "random")
            )
            rows.append(
                (
                    analysis.name,
                    f"{name} ({len(erasure)})",
                    _interval(told),
                    _interval(blind),
                    *map(_interval, areas),
                )
            )
    return _table(
        ("model", "words", "p, all to read", "p, nothing to read", "area by α", "area at random"), rows
    )


def _permuted(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        naming = analysis.permutation.only(OBJECT_WORDS)
        for name in naming.falls:
            fall, distance, changed = (
                _known(measured[name], naming)
                for measured in (naming.falls, naming.distances, naming.changed)
            )
            rows.append((analysis.name, name, _interval(fall, 2), _interval(distance), _percent(changed)))
    return _table(("model", "weights", "fall", "distance", "changed"), rows)


def _exchanged(analyses: Sequence[Analysis]) -> str:
    rows = []
    for analysis in analyses:
        for kind, exchanged in analysis.exchanges.items():
            for name in exchanged.follows if len(exchanged) else ():
                follows, stays, leads = (
                    estimate(measured[name], exchanged.images)
                    for measured in (exchanged.follows, exchanged.stays, exchanged.leads)
                )
                pairs = f"{kind} ({len(exchanged)})"
                rows.append(
                    (analysis.name, pairs, name, _percent(follows), _percent(stays), _interval(leads, 2))
                )
    return _table(
        ("model", "pairs", "weights", "the other word", "the word itself", "lead of the other"), rows
    )


def _agreement(agreements: Mapping[tuple[str, str], Agreement]) -> str:
    rows = []
    for (first, second), agreement in agreements.items():
        for title, part in (("all", agreement), ("naming", agreement.only(OBJECT_WORDS))):
            for name in part.measures:
                of = [_known(maps[name], part) for maps in (part.measures, part.other_word, part.other_image)]
                rows.append((f"{first} / {second}", title, name, *map(_interval, of)))
    return _table(("models", "words", "measure", "same word", "other word", "other image"), rows)


def _over_captions(measure: Callable[[np.ndarray], np.ndarray], maps: Sequence[np.ndarray]) -> Estimate:
    """The mean over words of something that gives a number for each (or nearly each) word of a caption."""
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


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
