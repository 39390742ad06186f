"""Do its words depend on where it looks? Measures that hide regions and exchange maps."""

from __future__ import annotations

from contextlib import suppress

from caption.analysis.faithfulness.interchange import interchange
from caption.analysis.faithfulness.permutation import permute
from caption.analysis.per_word import Measured
from caption.analysis.pruned_heads import count_heads, head_pruning
from caption.analysis.study.measure import Subjects, measure
from caption.analysis.study.subject import CURVES, Subject
from caption.analysis.table import AnalysisTable, Cell, Value, share
from caption.core.errors import UserError, first_few
from caption.metrics.significance import estimate

HIDDEN = 4
"""Regions after which the fall of log p is reported: about as many as one object of Shapes covers."""


@measure("model", "regions", "order", "area, deletion", "area, insertion", f"fall after {HIDDEN}")
def faithfulness(table: AnalysisTable, subjects: Subjects) -> None:
    """Do its words depend on where it looks?

    Deletion hides the regions of one word one after the other, and insertion shows them, in the order of the
    attention α or at random; the area is the word's mean probability on the way. If α shows which regions matter,
    deletion in its order lowers the probability faster than at random, and insertion raises it faster. The fall is that
    of log p after 4 regions, in nats. Regions that are removed leave their weight to the others; those that are
    replaced are read as the mean region of other images.
    """
    for subject in _counting(table, subjects):
        for way, curves in subject.curves.items():
            about = subject.images.about(curves)
            for order in about.orders:
                areas = [Value(estimate(about.area(kind, order), about.images)) for kind in CURVES]
                fall = estimate(about.fall(order, HIDDEN), about.images) if HIDDEN in about.counts else None
                table.add([[way, order, *areas, "–" if fall is None else Value(fall, 2)]], subject.name)
            gains = (about.area(kind, "attention") - about.area(kind, "random") for kind in CURVES)
            gained = [Value(estimate(gain, about.images)) for gain in gains]
            table.add([[way, "attention less random", *gained, "–"]], subject.name)


@measure("model", "words", "p, all to read", "p, nothing to read", "area by α", "area at random")
def classes(table: AnalysisTable, subjects: Subjects) -> None:
    """Which words depend on it?

    By class of words: their probability with all regions and with none, and the areas under deletion.
    """
    for subject in _counting(table, subjects):
        for name, curves in _by_class(subject, subject.curves["removed"]).items():
            curve = curves.curve("deletion", "attention")
            areas = [curves.area("deletion", order) for order in ("attention", "random")]
            cells = [Value(estimate(values, curves.images)) for values in (curve[:, 0], curve[:, -1], *areas)]
            table.add([[f"{name} ({len(curves)})", *cells]], subject.name)


@measure("model", "weights", "fall of log p", "distance", "changed")
def permutation(table: AnalysisTable, subjects: Subjects) -> None:
    """Do its words depend on this map?

    Each word's step is run again with other weights: permuted, even, of another word, of another image. The fall of
    log p is in nats; distance is the total variation between both predictions; changed is how often another word
    becomes the likeliest.
    """
    for subject in subjects:
        with subject.counted("permuted maps") as photos:
            measured = permute(subject.captioner, photos, subject.captions)
        about = subject.images.about(measured)
        for name, falls in about.falls.items():
            fall, changed = Value(about.mean(falls), 2), share(about.mean(about.changed[name]))
            table.add([[name, fall, Value(about.mean(about.distances[name])), changed]], subject.name)


@measure("model", "words", "divergence", "distance", "divergence, permuted", "distance, permuted")
def adversary(table: AnalysisTable, subjects: Subjects) -> None:
    """How far may a map go from α while the prediction stays?

    The map farthest from α, in Jensen-Shannon divergence (bits, at most 1), whose prediction differs by a total
    variation of 0.05 at most; searched for each word. Permuted maps are the control.
    """
    for subject in _counting(table, subjects):
        for name, maps in _by_class(subject, subject.adversaries).items():
            measures = (maps.divergences, maps.distances, maps.permuted, maps.permuted_distances)
            cells = [Value(estimate(measure, maps.images)) for measure in measures]
            table.add([[f"{name} ({len(maps)})", *cells]], subject.name)


@measure("model", "pairs", "weights", "the other word", "the word itself", "lead of the other")
def exchange(table: AnalysisTable, subjects: Subjects) -> None:
    """Does the word follow the map?

    Each word gets the map of another word of the same kind. How often the other word, and the word itself, comes
    first, and how far log p of the other is ahead.
    """
    for subject in subjects:
        for kind, words in subject.images.naming.items():
            with subject.counted(f"exchanged maps of {kind}") as photos, suppress(UserError):
                # The error: no caption has two of the words.
                pairs = interchange(subject.captioner, photos, words, subject.captions)
                for name in pairs.follows:
                    follows, stays = (
                        share(pairs.mean(shares[name])) for shares in (pairs.follows, pairs.stays)
                    )
                    cells: list[Cell] = [name, follows, stays, Value(pairs.mean(pairs.leads[name]), 2)]
                    table.add([[f"{kind} ({len(pairs)})", *cells]], subject.name)


@measure("model", "heads removed", "the last of them", "log p of a word", "fall of log p")
def heads(table: AnalysisTable, subjects: Subjects) -> None:
    """How many of its heads does it need?

    Maps of heads, hops or queries are set to 0, the least important one first, and the words are scored again; only one
    step is changed at a time. Log p is in nats.
    """
    for subject in subjects:
        if count_heads(subject.captioner, subject.photos, subject.captions) < 2:
            continue
        pruning = subject.images.about(head_pruning(subject.captioner, subject.photos, subject.captions))
        falls = pruning.log_probs[:, :1] - pruning.log_probs
        means = [
            [estimate(column, pruning.images) for column in values.T] for values in (pruning.log_probs, falls)
        ]
        names: list[Cell] = ["–", *(f"head {head}" for head in pruning.order)]
        table.add(
            ([n, names[n], *(Value(mean[n], 2) for mean in means)] for n in range(len(names))), subject.name
        )


def _counting(table: AnalysisTable, subjects: Subjects) -> Subjects:
    """The models, if all photos have the same number of regions; else the table says so."""
    several = [subject.name for subject in subjects if not subject.counts_regions]
    if not several:
        return subjects
    table.missing = (
        f"This counts regions, and the photos have grids of several sizes in {first_few(several)}: give photos of one "
        "size."
    )
    return []


def _by_class(subject: Subject, measured: Measured) -> dict[str, Measured]:
    """The measurements of each class of words that has any, and those of all other words."""
    classes = {**subject.images.naming, **subject.images.other_words}
    parts = {name: measured.only(words) for name, words in classes.items()}
    parts["other words"] = measured.only(set(measured.words).difference(*classes.values()))
    return {name: part for name, part in parts.items() if len(part)}
