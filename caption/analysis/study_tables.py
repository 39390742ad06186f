"""Studies of models as tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from caption.analysis.agreement import Agreement
from caption.analysis.faithfulness.adversary import TOLERANCE
from caption.analysis.faithfulness.curves import Kind
from caption.analysis.map_statistics import changes, entropies, measure_maps, unseen
from caption.analysis.per_word import Estimate, Measured, PerWord, estimate
from caption.analysis.scene_study import KINDS, OBJECT_WORDS, Scenes, Study
from caption.result import Caption
from caption.runtime.files import MARK

CLASSES = {**KINDS, "relations": frozenset(("above", "below", "left", "right"))}
OWN, BLIND = "attention", "random"
CURVES: tuple[Kind, ...] = ("deletion", "insertion")
HIDDEN = 4
"""Regions after which the fall of log p is reported: about as many as one object covers."""
WAYS = {"removed": "Removed", "replaced": "Replaced by the mean region"}
Rows = Iterator[list[str]]

TITLES = {
    "setting": ("Where the models look", "Brackets are 95 % bootstrap intervals over scenes."),
    "grounding": (
        "Do they look at what they name?",
        "Pointing accuracy: how often the most attended cell lies in the box of the object that a word names. The "
        "other maps know less: of another word, of another image, a Gaussian around the middle, even weights.",
    ),
    "maps": (
        "The maps",
        "Entropy in nats, the share of α that moves from one word to the next, and the share of regions with less than "
        "0.1 in a whole caption.",
    ),
    "faithfulness": (
        "Is that why they say it?",
        "Probability of the word while regions are hidden (deletion) or shown (insertion) in some order, and the fall "
        f"of log p after {HIDDEN} regions, in nats. A good order has a small area under deletion and a large one "
        "under insertion.",
    ),
    "classes": ("By class of words", "Removed regions; areas under deletion."),
    "permuted": (
        "Other weights at the step of a word",
        "The fall of log p in nats, the total variation between both predictions, and how often the best word changes.",
    ),
    "adversary": (
        "How far may a map go from α while the prediction stays?",
        "The map farthest from α, in Jensen-Shannon divergence (bits, at most 1), whose prediction differs by a total "
        f"variation of {TOLERANCE} at most; searched for each word. Permuted maps are as far and change it.",
    ),
    "exchanged": (
        "The map of another word of the same kind",
        "How often the other word, and the word itself, comes first, and how far log p of the other is ahead.",
    ),
    "agreement": ("Do two models look at the same places?", "Both get the captions of the first."),
}
"""Title and explanation of each table, in the order of a page."""


def make_tables(
    studies: Sequence[Study], agreements: Mapping[tuple[str, str], Agreement], scenes: Scenes, picture: str
) -> dict[str, str]:
    """Markdown by the names of `TITLES`.

    Args:
        studies: of models, at least one.
        agreements: of pairs of models, by their names.
        scenes: on which they were made.
        picture: file name of the figure.
    """

    def of_studies(head: str, rows: Callable[..., Rows], *more: str) -> str:
        columns = head.split(" | ")
        return _table(["model", *columns], {study.name: rows(study, *more) for study in studies})

    orders = f"order | area, deletion | area, insertion | fall after {HIDDEN}"
    by_way = [f"{title}:\n\n{of_studies(orders, _orders, way)}" for way, title in WAYS.items()]
    classes = "words | p, all to read | p, nothing to read | area by α | area at random"
    adversary = "words | divergence | distance | divergence, permuted | distance, permuted"
    exchanged = "pairs | weights | the other word | the word itself | lead of the other"
    pairs = {" / ".join(names): _agreement(agreement) for names, agreement in agreements.items()}
    between = ("models", "words", "measure", "same word", "other word", "other image")
    figure = f"![Deletion and insertion curves of naming words]({picture})"
    return {
        "setting": _setting(studies, scenes),
        "grounding": of_studies("maps | pointing accuracy | mass in the box", _grounding),
        "maps": of_studies("H[α] | change | hardly looked at", _maps),
        "faithfulness": "\n\n".join([figure, *by_way]),
        "classes": of_studies(classes, _classes),
        "permuted": of_studies("weights | fall | distance | changed", _permuted),
        "adversary": of_studies(adversary, _adversary),
        "exchanged": of_studies(exchanged, _exchanged),
        "agreement": _table(between, pairs) if pairs else "Only one model was given.",
    }


def make_page(tables: Mapping[str, str]) -> str:
    """A document of the tables, each with its title and an explanation; our mark is in a comment."""
    blocks: list[str] = []
    for name, (title, explanation) in TITLES.items():
        blocks += [f"{'##' if blocks else '#'} {title}", explanation, tables[name]]
    return "\n\n".join([*blocks, f"<!-- {MARK} -->"]) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _setting(studies: Sequence[Study], scenes: Scenes) -> str:
    log_l = measure_maps(studies[0].captions)["attention_entropy_max"]
    return (
        f"{len(scenes.photos)} scenes of the test split of Shapes. log L = {log_l:.2f} nats; the centre prior has "
        f"σ = {scenes.sigma:.2f} of the side."
    )


# -- functions that yield the rows of one study


def _grounding(study: Study) -> Rows:
    for name, grounding in study.groundings.items():
        values = (grounding.values(field) for field in ("hit", "mass"))
        yield [name, *(_interval(estimate(of, grounding.captions)) for of in values)]


def _maps(study: Study) -> Rows:
    measured = [_interval(_over_captions(of, study.captions), 2) for of in (entropies, changes)]
    with_words = [caption for caption in study.captions if caption.words]
    yield [*measured, _percent(_over_captions(lambda caption: np.array([unseen(caption)]), with_words))]


def _orders(study: Study, way: str) -> Rows:
    naming = study.curves[way].only(OBJECT_WORDS)
    for order in naming.orders:
        areas = [_interval(estimate(naming.area(kind, order), naming.images)) for kind in CURVES]
        fall = _interval(estimate(naming.fall(order, HIDDEN), naming.images), 2)
        yield ["**α**" if order == OWN else order, *areas, fall]


def _classes(study: Study) -> Rows:
    for name, curves in _by_class(study.curves["removed"]).items():
        curve = curves.curve("deletion", OWN)
        values = [curve[:, 0], curve[:, -1], *(curves.area("deletion", order) for order in (OWN, BLIND))]
        yield [f"{name} ({len(curves)})", *(_interval(estimate(of, curves.images)) for of in values)]


def _permuted(study: Study) -> Rows:
    naming = study.permutation.only(OBJECT_WORDS)
    for name in naming.falls:
        measures = (naming.falls, naming.distances, naming.changed)
        fall, distance, changed = (_known(measure[name], naming) for measure in measures)
        yield [name, _interval(fall, 2), _interval(distance), _percent(changed)]


def _adversary(study: Study) -> Rows:
    for name, found in _by_class(study.adversaries).items():
        measures = (found.divergences, found.distances, found.permuted, found.permuted_distances)
        yield [f"{name} ({len(found)})", *(_interval(estimate(of, found.images)) for of in measures)]


def _exchanged(study: Study) -> Rows:
    for kind, pairs in study.exchanges.items():
        for name in pairs.follows if len(pairs) else ():
            measures = (pairs.follows, pairs.stays, pairs.leads)
            follows, stays, leads = (estimate(measure[name], pairs.images) for measure in measures)
            yield [f"{kind} ({len(pairs)})", name, _percent(follows), _percent(stays), _interval(leads, 2)]


def _agreement(agreement: Agreement) -> Rows:
    for title, part in (("all", agreement), ("naming", agreement.only(OBJECT_WORDS))):
        for name in part.measures:
            maps = (part.measures, part.other_word, part.other_image)
            yield [title, name, *(_interval(_known(of[name], part)) for of in maps)]


def _table(head: Sequence[str], rows: Mapping[str, Rows]) -> str:
    """A table of the rows of every model, with the model's name in front."""
    return markdown_table(head, ([name, *row] for name, of in rows.items() for row in of))


def _over_captions(measure: Callable[[Caption], np.ndarray], captions: Sequence[Caption]) -> Estimate:
    """The mean of a measure that gives any number of values for a caption."""
    values = [measure(caption) for caption in captions]
    return estimate(np.concatenate(values), np.repeat(np.arange(len(captions)), [len(of) for of in values]))


def _by_class(measured: Measured) -> dict[str, Measured]:
    classes = {name: measured.only(words) for name, words in CLASSES.items()}
    classes["other words"] = measured.only(set(measured.words).difference(*CLASSES.values()))
    return {name: part for name, part in classes.items() if len(part)}


def _known(values: np.ndarray, part: PerWord) -> Estimate:
    """The mean of what could be measured: a caption of one word has no other word."""
    known = ~np.isnan(values)
    return estimate(values[known], part.images[known])


def _interval(of: Estimate, digits: int = 3) -> str:
    return f"{of.mean:.{digits}f} [{of.low:.{digits}f}, {of.high:.{digits}f}]"


def _percent(of: Estimate) -> str:
    return f"{100 * of.mean:.0f} % [{100 * of.low:.0f}, {100 * of.high:.0f}]"
