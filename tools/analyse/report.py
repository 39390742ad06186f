"""The measured sections of docs/analysis.md. Every sentence that states a result is chosen by the numbers it states."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from caption.analysis.maps import changes, entropies, measure_maps, unseen
from caption.analysis.means import Estimate, difference, estimate
from caption.data.shapes.scene import COLOURS
from caption.data.shapes.silhouettes import SHAPES
from tools.documents import table

if TYPE_CHECKING:
    from caption.analysis.agreement import Agreement
    from caption.analysis.faithfulness.curves import Erasure, Kind
    from caption.analysis.means import PerWord
    from caption.result import Caption
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
Rows = Iterator[list[str]]
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

    def each(head: str, rows: Callable[..., Rows], *more: str) -> str:
        columns = head.split(" | ")
        return _table(["model", *columns], {analysis.name: rows(analysis, *more) for analysis in analyses})

    orders = f"order | area, deletion | area, insertion | fall after {HIDDEN}"
    by_way = [f"{title}:\n\n{each(orders, _orders, way)}" for way, title in WAYS.items()]
    classes = "words | p, all to read | p, nothing to read | area by α | area at random"
    exchanged = "pairs | weights | the other word | the word itself | lead of the other"
    agreed = {" / ".join(names): _agreement(agreement) for names, agreement in agreements.items()}
    between = ("models", "words", "measure", "same word", "other word", "other image")
    figure = f"![Deletion and insertion curves of naming words]({setting.picture})"
    return {
        "setting": _setting(analyses, setting),
        "summary": "\n".join([*map(_summary, analyses), *map(_agree, agreements, agreements.values())]),
        "grounding": each("maps | pointing accuracy | mass in the box", _grounding),
        "maps": each("H[α] | change | hardly looked at", _maps),
        "faithfulness": "\n\n".join([figure, *by_way]),
        "classes": each(classes, _classes),
        "permuted": each("weights | fall | distance | changed", _permuted),
        "exchanged": each(exchanged, _exchanged),
        "agreement": _table(between, agreed) if agreed else "Only one model was given.",
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
        f"replaced) α goes {' to '.join(shares)} % of the way from a random order to the best one tried. {verdict} "
        f"Significantly ahead of it, by any amount: {_listed(better_ones) if better_ones else 'none'}."
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


# -- tables: functions that yield the rows of one analysis


def _grounding(analysis: Analysis) -> Rows:
    for name, grounding in analysis.groundings.items():
        values = (grounding.values(field) for field in ("hit", "mass"))
        yield [name, *(_interval(estimate(of, grounding.captions)) for of in values)]


def _maps(analysis: Analysis) -> Rows:
    measured = [_interval(_over_captions(of, analysis.captions), 2) for of in (entropies, changes)]
    told = [caption for caption in analysis.captions if caption.words]
    left_out = _over_captions(lambda caption: np.array([unseen(caption)]), told)
    yield [*measured, _percent(left_out)]


def _orders(analysis: Analysis, way: str) -> Rows:
    naming = analysis.erasures[way].only(OBJECT_WORDS)
    for order in naming.orders:
        areas = [_interval(estimate(naming.area(kind, order), naming.images)) for kind in SIGNS]
        fall = _interval(estimate(naming.fall(order, HIDDEN), naming.images), 2)
        yield ["**α**" if order == OWN else order, *areas, fall]


def _classes(analysis: Analysis) -> Rows:
    for name, erasure in _by_class(analysis.erasures["removed"]).items():
        curve = erasure.curve("deletion", OWN)
        values = [curve[:, 0], curve[:, -1], *(erasure.area("deletion", order) for order in (OWN, BLIND))]
        yield [f"{name} ({len(erasure)})", *(_interval(estimate(of, erasure.images)) for of in values)]


def _permuted(analysis: Analysis) -> Rows:
    of = analysis.permutation.only(OBJECT_WORDS)
    for name in of.falls:
        fall, distance, changed = (_known(all[name], of) for all in (of.falls, of.distances, of.changed))
        yield [name, _interval(fall, 2), _interval(distance), _percent(changed)]


def _exchanged(analysis: Analysis) -> Rows:
    for kind, of in analysis.exchanges.items():
        for name in of.follows if len(of) else ():
            measured = (estimate(all[name], of.images) for all in (of.follows, of.stays, of.leads))
            follows, stays, leads = measured
            yield [f"{kind} ({len(of)})", name, _percent(follows), _percent(stays), _interval(leads, 2)]


def _agreement(agreement: Agreement) -> Rows:
    for title, part in (("all", agreement), ("naming", agreement.only(OBJECT_WORDS))):
        for name in part.measures:
            maps = (part.measures, part.other_word, part.other_image)
            yield [title, name, *(_interval(_known(of[name], part)) for of in maps)]


def _table(head: Sequence[str], rows: Mapping[str, Rows]) -> str:
    """A table of the rows of every model, with the model's name in front."""
    return table(head, ([name, *row] for name, of in rows.items() for row in of))


def _over_captions(measure: Callable[[Caption], np.ndarray], captions: Sequence[Caption]) -> Estimate:
    """The mean of a measure that gives any number of values for a caption."""
    values = [measure(caption) for caption in captions]
    return estimate(np.concatenate(values), np.repeat(np.arange(len(captions)), [len(of) for of in values]))


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
