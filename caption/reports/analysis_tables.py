"""The measured sections of docs/analysis.md. Every answer in its summary is chosen by the numbers of the tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from caption.analysis.map_statistics import changes, entropies, measure_maps, unseen
from caption.analysis.per_word import Estimate, difference, estimate
from caption.data.shapes.scene import COLOURS
from caption.data.shapes.silhouettes import SHAPES
from caption.reports.documents import table

if TYPE_CHECKING:
    from caption.analysis.agreement import Agreement
    from caption.analysis.faithfulness.curves import Erasure, Kind
    from caption.analysis.per_word import PerWord
    from caption.reports.analysis import Analysis
    from caption.result import Caption

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
    """The sections by name, from analyses of models and agreements of pairs of them, by their names."""

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
        "summary": each("question | measured | answer", _summary),
        "grounding": each("maps | pointing accuracy | mass in the box", _grounding),
        "maps": each("H[α] | change | hardly looked at", _maps),
        "faithfulness": "\n\n".join([figure, *by_way]),
        "classes": each(classes, _classes),
        "permuted": each("weights | fall | distance | changed", _permuted),
        "exchanged": each(exchanged, _exchanged),
        "agreement": _table(between, agreed) if agreed else "Only one model was given.",
    }


# -- setting and summary


def _setting(analyses: Sequence[Analysis], setting: Setting) -> str:
    lines = [f"{setting.scenes} scenes, by `caption analyse{setting.arguments}`."]
    for blind, sentence in STARTS.items():
        names = [analysis.name for analysis in analyses if analysis.starts_blind == blind]
        lines += [sentence.format(_listed(names))] if names else []
    log_l = measure_maps(analyses[0].captions)["attention_entropy_max"]
    taken = _listed([f"{analysis.seconds:.1f} s ({analysis.name})" for analysis in analyses])
    lines.append(f"log L = {log_l:.2f} nats; the centre prior has σ = {setting.sigma:.2f} of the side.")
    threads = "1 thread" if setting.threads == 1 else f"{setting.threads} threads"
    return "\n".join([*lines, f"Captions and pointing game took {taken} on {threads}."])


def _summary(analysis: Analysis) -> Rows:
    yield ["looks at what it names", *_points(analysis)]
    yield ["attention is the reason for these words", *_explains(analysis)]
    yield ["needs the look at its step", *_reads(analysis)]
    yield ["the word follows the look", *_follows(analysis)]


def _points(analysis: Analysis) -> tuple[str, str]:
    """The blind maps that are significantly less accurate than the model's; all must be."""
    own = analysis.groundings["its own maps"]
    leads = {
        name: difference(other.values("hit"), own.values("hit"), own.captions).low > 0
        for name, other in analysis.groundings.items()
        if other is not own
    }
    ahead = [name for name, leading in leads.items() if leading]
    return f"more accurate than {_listed(ahead)}", "yes" if all(leads.values()) else "not shown"


def _explains(analysis: Analysis) -> tuple[str, str]:
    """How far α goes from random orders to the best, in deletion and insertion under both ways of hiding."""
    shares: list[float] = []
    beaten = 0
    ahead = Counter[str]()
    for erasure in analysis.erasures.values():
        naming = erasure.only(OBJECT_WORDS)
        for kind, better in SIGNS.items():
            areas = {order: better * naming.area(kind, order) for order in naming.orders}
            means = {order: float(values.mean()) for order, values in areas.items()}
            room = max(means.values()) - means[BLIND]
            shares.append((means[OWN] - means[BLIND]) / room if room > 0 else 0.0)
            leads = {order: difference(areas[OWN], values, naming.images) for order, values in areas.items()}
            beaten += leads[BLIND].high < 0
            ahead.update(order for order, lead in leads.items() if lead.low > 0)
    least, most = (math.floor(100 * share + 1e-9) for share in (min(shares), max(shares)))
    others = _listed([f"{order} in {count}" for order, count in ahead.items()])
    measured = f"{least} to {most} % of the way to the best order; ahead of α: {others}"
    if beaten < len(shares):
        return measured, f"not shown: beats chance in {beaten} of {len(shares)} tests"
    return measured, "in part" if min(shares) < NEARLY else "faithful"


def _reads(analysis: Analysis) -> tuple[str, str]:
    """How many words lose half of p when nothing is read, by class; and the classes of which most do."""
    lost = {}
    for name, erasure in _by_class(analysis.erasures["removed"]).items():
        curve = erasure.curve("deletion", OWN)
        lost[name] = estimate(curve[:, -1] < curve[:, 0] / 2, erasure.images)
    needing = [name for name, share in lost.items() if share.mean > 0.5]
    return _listed([f"{name} {_percent(share)}" for name, share in lost.items()]), _listed(needing)


def _follows(analysis: Analysis) -> tuple[str, str]:
    """Whether the word whose map was given is said: more often than with that map permuted, and mostly."""
    beyond: dict[str, bool] = {}
    mostly: dict[str, bool] = {}
    for kind, exchanged in analysis.exchanges.items():
        if len(exchanged):
            placed, permuted = (
                exchanged.follows[name] for name in ("of the other", "of the other, permuted")
            )
            beyond[kind] = difference(permuted, placed, exchanged.images).low > 0
            mostly[kind] = estimate(placed, exchanged.images).low > 0.5
    both = [kind for kind in beyond if beyond[kind] and mostly[kind]]
    if not beyond:
        return "no caption has two different colours or shapes", "not measured"
    shown = "yes" if len(both) == len(beyond) else "in part" if any(beyond.values()) else "not shown"
    return f"more than by chance, and mostly: {_listed(both)}", shown


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
    if len(names) < 2:
        return names[0] if names else "none"
    return f"{', '.join(names[:-1])} and {names[-1]}"
