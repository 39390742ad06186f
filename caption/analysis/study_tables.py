"""Studies of models as tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from caption.analysis.agreement import Agreement
from caption.analysis.faithfulness.adversary import TOLERANCE
from caption.analysis.map_statistics import measure_maps
from caption.analysis.per_word import Measured
from caption.analysis.scene_study import KINDS, OBJECT_WORDS, Scenes, Study
from caption.analysis.table_rows import (
    BLIND,
    OWN,
    Rows,
    Value,
    agreement_rows,
    grounding_values,
    map_values,
    markdown_table,
    order_rows,
    permutation_rows,
    share,
)
from caption.metrics.significance import estimate
from caption.runtime.files import MARK

CLASSES = {**KINDS, "relations": frozenset(("above", "below", "left", "right"))}
HIDDEN = 4
"""Regions after which the fall of log p is reported: about as many as one object covers."""
WAYS = {"removed": "Removed", "replaced": "Replaced by the mean region"}

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


def _setting(studies: Sequence[Study], scenes: Scenes) -> str:
    log_l = measure_maps(studies[0].captions)["attention_entropy_max"]
    return (
        f"{len(scenes.photos)} scenes of the test split of Shapes. log L = {log_l:.2f} nats; the centre prior has "
        f"σ = {scenes.sigma:.2f} of the side."
    )


# -- functions that yield the rows of one study


def _grounding(study: Study) -> Rows:
    for name, grounding in study.groundings.items():
        yield [name, *grounding_values(grounding)]


def _maps(study: Study) -> Rows:
    yield [*map_values(study.captions)]


def _orders(study: Study, way: str) -> Rows:
    for order, *values in order_rows(study.curves[way].only(OBJECT_WORDS), HIDDEN):
        yield ["**α**" if order == OWN else order, *values]


def _classes(study: Study) -> Rows:
    for name, curves in _by_class(study.curves["removed"]).items():
        curve = curves.curve("deletion", OWN)
        values = [curve[:, 0], curve[:, -1], *(curves.area("deletion", order) for order in (OWN, BLIND))]
        yield [f"{name} ({len(curves)})", *(Value(estimate(of, curves.images)) for of in values)]


def _permuted(study: Study) -> Rows:
    return permutation_rows(study.permutation.only(OBJECT_WORDS))


def _adversary(study: Study) -> Rows:
    for name, found in _by_class(study.adversaries).items():
        measures = (found.divergences, found.distances, found.permuted, found.permuted_distances)
        yield [f"{name} ({len(found)})", *(Value(estimate(of, found.images)) for of in measures)]


def _exchanged(study: Study) -> Rows:
    for kind, pairs in study.exchanges.items():
        for name in pairs.follows if len(pairs) else ():
            measures = (pairs.follows, pairs.stays, pairs.leads)
            follows, stays, leads = (estimate(measure[name], pairs.images) for measure in measures)
            yield [f"{kind} ({len(pairs)})", name, share(follows), share(stays), Value(leads, 2)]


def _agreement(agreement: Agreement) -> Rows:
    for title, part in (("all", agreement), ("naming", agreement.only(OBJECT_WORDS))):
        yield from ([title, *row] for row in agreement_rows(part))


def _table(head: Sequence[str], rows: Mapping[str, Rows]) -> str:
    """A table of the rows of every model, with the model's name in front."""
    return markdown_table(head, ([name, *row] for name, of in rows.items() for row in of))


def _by_class(measured: Measured) -> dict[str, Measured]:
    classes = {name: measured.only(words) for name, words in CLASSES.items()}
    classes["other words"] = measured.only(set(measured.words).difference(*CLASSES.values()))
    return {name: part for name, part in classes.items() if len(part)}
