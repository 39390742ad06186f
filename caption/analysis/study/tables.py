"""The measures of a study: functions from models to tables."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations

import numpy as np

from caption.analysis.agreement import Agreement, agree
from caption.analysis.chair import chair as measure_chair
from caption.analysis.faithfulness.interchange import interchange
from caption.analysis.faithfulness.permutation import permute
from caption.analysis.map_statistics import changes, entropies, measure_maps, unseen
from caption.analysis.maps import scales
from caption.analysis.maps.blurring import areas_by_blurring
from caption.analysis.named_groups import AGREE, GROUPS, count_named, named_rows
from caption.analysis.per_word import Measured, known_mean
from caption.analysis.pointing_game import Grounding
from caption.analysis.pruned_heads import count_heads, head_pruning
from caption.analysis.sense import nonsense as measure_nonsense
from caption.analysis.sense import persons as measure_persons
from caption.analysis.study.subject import CURVES, EFFECT, MIDDLE, OF_BOXES, OWN, RANDOM_SAMPLE, Subject
from caption.analysis.table import AnalysisTable, Cell, Value, share
from caption.attention.stochastic import stochastic_parts
from caption.core.errors import UserError, first_few
from caption.metrics.significance import Estimate, estimate
from caption.results.caption import Caption

Subjects = Sequence[Subject]
Measure = Callable[[Subjects], AnalysisTable | None]
"""None = it applies to none of the models."""
Rows = Iterator[list[Cell]]
GAIN = f"{OWN} less {MIDDLE}"
SAMPLE = 20
"""Photos that are blurred or get noise."""
NEED_METHODS = "Give methods, such as --maps attention gradcam occlusion."
HIDDEN = 4
"""Regions after which the fall of log p is reported: about as many as one object of Shapes covers."""
NEED_BOXES = (
    "Give boxes of objects with --boxes: COCO's instances_*.json, or a JSON object of photos by name, each with its "
    "size and objects."
)
NEED_REFERENCES = (
    "Give people's captions with --references: COCO's captions JSON, a token file, CSV, JSON lines or Karpathy's "
    "JSON."
)
NEED_CATEGORIES = (
    "Give COCO's instances_*.json with --boxes, in which the objects of all categories are annotated: of all photos, "
    "or of those whose ids it lists as its key 'all'."
)
NEED_MODELS = "Give several models, each as --model NAME=MODEL."


MEASURES: dict[str, Measure] = {}
"""By name, in the order of a page."""
ON_PHOTOS: list[str] = []
ON_SHAPES: list[str] = []
OF_MAPS: list[str] = []
"""Names of measures: of photos; of scenes, where the truth about every word is known; and of map methods."""


def measure(
    *columns: str, on: Sequence[list[str]] = (ON_PHOTOS, ON_SHAPES)
) -> Callable[[Callable[[AnalysisTable, Subjects], None]], Measure]:
    """Turn a function that fills a table into a measure. Its docstring has the question, then the method.

    Args:
        columns: of the table.
        on: lists of measures to which the function's name is added.
    """

    def decorate(fill: Callable[[AnalysisTable, Subjects], None]) -> Measure:
        title, _, meaning = (inspect.getdoc(fill) or "").partition("\n\n")

        @functools.wraps(fill)
        def of_subjects(subjects: Subjects) -> AnalysisTable | None:
            table = AnalysisTable(columns, title=title, meaning=" ".join(meaning.split()))
            fill(table, subjects)
            return table if table.rows or table.missing else None

        name = fill.__name__.replace("_", " ")
        MEASURES[name] = of_subjects
        for names in on:
            names.append(name)
        return of_subjects

    return decorate


@measure("model", "maps", "words", "pointing accuracy", "mass in the box")
def grounding(table: AnalysisTable, subjects: Subjects) -> None:
    """Does it look at what it names?

    The pointing game: for every word that names something with a box, the most attended cell should lie in such a
    box (or mask). The baselines are the middle of the image, where people put things; the mean of the model's maps;
    its maps of another word and of another image. Posterior maps are computed from the word. The mass is the share of
    attention in the boxes. Rows for each kind of thing, and for the most frequent words, have the middle of the image
    beside them; the last row is the gain over the middle. This shows where the model looked, not that the word depends
    on it.
    """
    images = subjects[0].images
    if not images.boxed:
        table.missing = NEED_BOXES
    elif not any(subject.groundings for subject in subjects):
        things = first_few(images.categories) if images.categories else "an object of the boxes"
        table.missing = (
            f"No word of the captions, or those of one photo alone, names {things}: give the boxes of things in "
            "these photos" + ("." if images.references else ", or people's captions with --references.")
        )
    for subject in subjects:
        if subject.groundings:
            table.add(_grounding_rows(subject), subject.name)
            text = " ".join(f" {' '.join(caption.words).lower()} " for caption in subject.pointed.captions)
            unnamed = [
                category
                for category, words in images.categories.items()
                if not any(f" {word} " in text for word in words)
            ]
            if unnamed:
                table.notes.append(
                    f"{len(unnamed)} of {len(images.categories)} categories are named by no word of the captions: "
                    f"{first_few(unnamed)}."
                )
    table.notes = list(dict.fromkeys(table.notes))


def _grounding_rows(subject: Subject) -> Rows:
    own, middle = subject.parts(OWN), subject.parts(MIDDLE)
    parts = {f"{name}, {part}": of[part] for part in own for name, of in ((OWN, own), (MIDDLE, middle))}
    for name, played in ({OWN: subject.groundings[OWN]} | parts | subject.groundings).items():
        yield [name, len(played), *_pointing_values(subject, played)]
    best, base = subject.groundings[OWN], subject.groundings[MIDDLE]
    gains = (best.values(field) - base.values(field) for field in ("hit", "mass"))
    is_share, images = not subject.images.naming, subject.images_of(best)
    yield [GAIN, len(best), *(Value(estimate(gain, images), is_share=is_share) for gain in gains)]


def _pointing_values(subject: Subject, played: Grounding) -> list[Value]:
    """The pointing accuracy and the mass in the box."""
    images, is_share = subject.images_of(played), not subject.images.naming
    means = (estimate(played.values(field), images) for field in ("hit", "mass"))
    return [Value(mean, is_share=is_share) for mean in means]


@measure("model", "map", "words", "pointing accuracy", "mass in the box")
def single_maps(table: AnalysisTable, subjects: Subjects) -> None:
    """Which of its maps points best?

    The pointing game by each single map, such as a head or a hop, and by the mean of a layer's maps; the best come
    first. Only words for things in the image count. Chosen on other images: the map that points best on half of the
    images, at the words of the other half, and vice versa. Whether a word depends on a head is another question.
    """
    for subject in subjects:
        captions = subject.pointed.captions if subject.images.boxed else []
        summary = subject.grounding(captions).present
        if not len(summary) or len(captions[0].single_maps()) < 2:
            continue
        played = {}
        for name, structured in captions[0].maps.items():
            labels = captions[0].single_maps(name)
            singles = [list(caption.single_maps(name).values()) for caption in captions]
            for number, label in enumerate(labels):
                played[label] = subject.grounding([of_caption[number] for of_caption in singles]).present
            if structured.ndim > 3:
                means = [
                    maps[0].with_weights(np.mean([single.weights for single in maps], 0)) for maps in singles
                ]
                played[f"mean of {name}"] = subject.grounding(means).present
        best = _chosen_on_others(list(played.values()), subject.images_of(summary))
        ranked = sorted(played, key=lambda label: -played[label].accuracy)
        shown = {"the best, chosen on other images": best} | {label: played[label] for label in ranked}
        rows: list[list[Cell]] = [
            [name, len(of_map), *_pointing_values(subject, of_map)] for name, of_map in shown.items()
        ]
        table.add(rows, subject.name)


def _chosen_on_others(played: Sequence[Grounding], images: np.ndarray) -> Grounding:
    """The pointing of each half of the images by the map that points best on the other half.

    Args:
        played: by each map, at the same N mentions.
        images: (N,) of the mentions.
    """
    hits = np.array([of_map.values("hit") for of_map in played])
    best = [int(hits[:, images % 2 != half].sum(1).argmax()) for half in (0, 1)]
    chosen = [played[best[image % 2]].pointings[number] for number, image in enumerate(images)]
    return Grounding(tuple(chosen), played[0].measured)


@measure("model", "regions", "order", "area, deletion", "area, insertion", f"fall after {HIDDEN}")
def faithfulness(table: AnalysisTable, subjects: Subjects) -> None:
    """Do its words depend on where it looks?

    Deletion hides the regions of one word one after the other, and insertion shows them, in the order of the
    attention α or at random; the area is the word's mean probability on the way. If α shows which regions matter,
    deletion in its order lowers the probability faster than at random, and insertion raises it faster. The fall is that
    of log p after 4 regions, in nats. Regions that are removed leave their weight to the others; those that are
    replaced are read as the mean region of other images.
    """
    for subject in subjects:
        for way, curves in subject.curves.items():
            about = subject.images.about(curves)
            for order in about.orders:
                areas = [Value(estimate(about.area(kind, order), about.images)) for kind in CURVES]
                fall = estimate(about.fall(order, HIDDEN), about.images) if HIDDEN in about.counts else None
                table.add([[way, order, *areas, "–" if fall is None else Value(fall, 2)]], subject.name)
            gains = (about.area(kind, "attention") - about.area(kind, "random") for kind in CURVES)
            gained = [Value(estimate(gain, about.images)) for gain in gains]
            table.add([[way, "attention less random", *gained, "–"]], subject.name)


@measure(
    "model", "words", "p, all to read", "p, nothing to read", "area by α", "area at random", on=[ON_SHAPES]
)
def classes(table: AnalysisTable, subjects: Subjects) -> None:
    """Which words depend on it?

    By class of words: their probability with all regions and with none, and the areas under deletion.
    """
    for subject in subjects:
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


@measure(
    "model", "words", "divergence", "distance", "divergence, permuted", "distance, permuted", on=[ON_SHAPES]
)
def adversary(table: AnalysisTable, subjects: Subjects) -> None:
    """How far may a map go from α while the prediction stays?

    The map farthest from α, in Jensen-Shannon divergence (bits, at most 1), whose prediction differs by a total
    variation of 0.05 at most; searched for each word. Permuted maps are the control.
    """
    for subject in subjects:
        for name, maps in _by_class(subject, subject.adversaries).items():
            measures = (maps.divergences, maps.distances, maps.permuted, maps.permuted_distances)
            cells = [Value(estimate(measure, maps.images)) for measure in measures]
            table.add([[f"{name} ({len(maps)})", *cells]], subject.name)


@measure(
    "model", "pairs", "weights", "the other word", "the word itself", "lead of the other", on=[ON_SHAPES]
)
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


@measure("models", "words", "measure", "same word", "another word", "another image")
def agreement(table: AnalysisTable, subjects: Subjects) -> None:
    """Do the models look at the same places?

    All are fed the captions of the first, and their maps compared word by word. Divergence is Jensen-Shannon's in
    bits, 0 for equal maps; overlap is the mass in common; same cell is how often both have their maximum in one cell.
    The same with maps of another word and image is the level that any two maps reach.
    """
    if len(subjects) == 1:
        table.missing = NEED_MODELS
        return
    first, models = subjects[0], {subject.name: subject.captioner for subject in subjects}
    try:
        pairs = agree(models, first.photos, first.captions)
    except UserError as error:  # their grids differ
        table.missing = f"{error}."
        return
    for names, agreed in pairs.items():
        parts = {"all": agreed} | ({"naming": first.images.about(agreed)} if first.images.naming else {})
        for words, part in parts.items():
            table.add(_agreement_rows(part), " / ".join(names), words)


def _agreement_rows(part: Agreement) -> Rows:
    for name in part.measures:
        yield [
            name,
            *(Value(part.mean(maps[name])) for maps in (part.measures, part.other_word, part.other_image)),
        ]


@measure("model", "captions", "H[α]", "log L", "change", "hardly looked at")
def entropy(table: AnalysisTable, subjects: Subjects) -> None:
    """How concentrated are its maps?

    H[α] is the entropy in nats, from 0, one region, to log L, all alike; e to the H is the number of regions over
    which attention is spread. Change is the share of α that moves from one word to the next; hardly looked at are
    regions with less than 0.1 in a whole caption.
    """
    for subject in subjects:
        table.add([["its own", *_map_cells(subject.captions)]], subject.name)
        if subject.images.references and subject.pointed.captions:
            table.add([["people's, with boxes", *_map_cells(subject.pointed.captions)]], subject.name)


def _map_cells(captions: Sequence[Caption]) -> list[Cell]:
    """H[α] and log L in nats, the share of α that moves from word to word, that of regions hardly looked at."""

    def over_captions(measure: Callable[[Caption], np.ndarray]) -> Estimate:
        values = [measure(caption) for caption in captions]
        images = np.repeat(np.arange(len(captions)), [len(several) for several in values])
        return known_mean(np.concatenate(values), images)

    log_l = f"{measure_maps(captions)['attention_entropy_max']:.2f}"
    hardly = over_captions(lambda caption: np.array([unseen(caption)]))
    return [Value(over_captions(entropies), 2), log_l, Value(over_captions(changes), 2), share(hardly)]


@measure("model", "people agree on", "photos", *(f"says {group}" for group in GROUPS), on=[ON_PHOTOS])
def named(table: AnalysisTable, subjects: Subjects) -> None:
    """Who is named?

    Photos count for a group if at least three people's captions name it and none names another one. The table has the
    share of the model's captions of these photos that name each group. Intervals are Wilson's.
    """
    references = subjects[0].images.references
    counts = {
        subject.name: count_named(references, dict(zip(subject.photos, subject.captions, strict=True)))
        for subject in subjects
    }
    if not references:
        table.missing = NEED_REFERENCES
    elif not any(photos for groups in counts.values() for photos, _ in groups.values()):
        table.missing = (
            f"There is no photo of which {AGREE} people's captions name the same group, such as man, woman or dog, and "
            "no other: give more captions of each photo, or more photos."
        )
    for name, groups in () if table.missing else counts.items():
        table.add(named_rows(groups), name)


@measure("model", "captions", "mentions", "CHAIRi", "CHAIRs", on=[ON_PHOTOS])
def chair(table: AnalysisTable, subjects: Subjects) -> None:
    """Does it name objects that are not there?

    Mentions of COCO's categories on photos in which all of them are annotated. A mention is hallucinated if the object
    has no box and none of people's captions mentions it. CHAIRi is the share of mentions that are hallucinated, CHAIRs
    the share of captions with at least one.
    """
    images = subjects[0].images
    shown = {str(photo.path): photo.shown for photo in images.pointed_at if photo.shown is not None}
    if not shown or not images.references:
        table.missing = NEED_CATEGORIES if images.references else NEED_REFERENCES
        return
    for subject in subjects:
        texts = _texts(subject)
        measures = measure_chair(
            {photo: texts[photo] for photo in shown}, shown, images.references, images.categories
        )
        shares = share(measures.instances), share(measures.sentences)
        table.add([[subject.name, len(shown), measures.mentions, *shares]])
        if measures.hallucinated:
            categories = first_few(measures.hallucinated)
            table.notes.append(f"Hallucinated by {subject.name}, most frequent first: {categories}.")


@measure("model", "photos without people", "captions with a person", on=[ON_PHOTOS])
def persons(table: AnalysisTable, subjects: Subjects) -> None:
    """Does it name people where nobody is?

    The share of captions that name a person, on photos of which none of people's captions does. Persons are COCO's
    words and others such as "crowd", "worker", "passengers"; "a baby elephant" and "a couple of dogs" are none.
    """
    references = subjects[0].images.references
    if not references:
        table.missing = NEED_REFERENCES
        return
    for subject in subjects:
        measured = measure_persons(_texts(subject), references)
        if not measured.by_photo:
            table.missing = (
                "People's captions of each of these photos name a person: give photos without people."
            )
            return
        table.add([[subject.name, len(measured.by_photo), share(measured.share)]])


@measure("model", "captions", "nonsense", "people's captions", on=[ON_PHOTOS])
def nonsense(table: AnalysisTable, subjects: Subjects) -> None:
    """Do its sentences make sense?

    The share of captions that say a word of four letters or more twice (function words, colours and sizes aside), or
    any word twice in a row, or begin with a place that sits, stands or walks. People's own captions do so, too ("a
    tennis player on a tennis court"): their share is beside it.
    """
    for subject in subjects:
        texts = _texts(subject)
        measured = measure_nonsense(texts, subject.images.references)
        table.add([[subject.name, len(texts), share(measured.share), share(measured.people)]])
        if faulty := [texts[photo] for photo, fault in measured.by_photo.items() if fault]:
            table.notes.append(f"Nonsense by {subject.name}: {first_few(faulty)}.")


def _texts(subject: Subject) -> dict[str, str]:
    """The captions by photo."""
    pairs = zip(subject.photos, subject.captions, strict=True)
    return {photo: caption.text for photo, caption in pairs}


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


@measure(
    "model", "map", "words", *OF_BOXES, *CURVES, EFFECT, "ms per word", "MB", on=[OF_MAPS]
)  # fmt: skip
def maps(table: AnalysisTable, subjects: Subjects) -> None:
    """Which map should I believe?

    Pointing accuracy and mass: is the map on the object that the word names? Deletion and insertion: the areas when
    regions are hidden from the word, and shown, in the order of the map; a low and a high one are good. True effect: of
    the objects of a scene, taken out one at a time, the one that changes the word the most should have the most of the
    map. MB: the most memory that tensors take while a word's map is drawn, beside the model.
    """
    for subject in _with_methods(table, subjects):
        if stochastic_parts(subject.captioner):
            table.notes.append(f"The hard attention of {subject.name} reads its expectation here, Σ α_i a_i.")
        spoken = [number for number, caption in enumerate(subject.captions) if caption.words][:2]
        few = [subject.photos[number] for number in spoken], [subject.captions[number] for number in spoken]
        for method, by_scale in subject.weighed.items():
            cells: list[Cell] = [method, next(iter(by_scale.values())).words]
            for scale in (*OF_BOXES, *CURVES, EFFECT):
                is_share = scale in OF_BOXES and not subject.images.naming
                cells.append(Value(by_scale[scale].mean, is_share=is_share) if scale in by_scale else "–")
            megabytes = scales.peak_bytes(subject.captioner, method, *few) / 1e6
            cost = f"{1000 * subject.drawn[method].seconds:.1f}", f"{megabytes:.1f}"
            table.add([[*cells, *cost]], subject.name)


def _with_methods(table: AnalysisTable, subjects: Subjects, least: int = 1) -> Subjects:
    """The models, if there are methods; else the table says so."""
    if len(subjects[0].methods) >= least:
        return subjects
    table.missing = NEED_METHODS
    return []


@measure("model", "map", "less", "scale", "difference", "p", on=[OF_MAPS])
def map_differences(table: AnalysisTable, subjects: Subjects) -> None:
    """Is another map better than the first?

    The difference of each map from the first, at the same words. p is two-sided, how often the mean would be as far
    from 0 if the two maps of each photo were exchanged at random, and not corrected for the number of comparisons.
    """
    for subject in _with_methods(table, subjects, least=2):
        first, *others = subject.methods
        for method in others:
            for scale, of_first in subject.weighed[first].items():
                of_method = subject.weighed[method][scale]
                gain = of_method._replace(values=of_method.values - of_first.values)
                cells: list[Cell] = [method, first, scale, Value(gain.mean), f"{gain.p_value:.2g}"]
                table.add([cells], subject.name)


@measure(
    "model", "map", "deletion, pixels", "insertion, pixels", "random model", "under noise", on=[OF_MAPS]
)  # fmt: skip
def map_sanity(table: AnalysisTable, subjects: Subjects) -> None:
    """Does the map hold on pixels, depend on what was learned, and stay under noise?

    Deletion and insertion on pixels: the areas when the photo is blurred cell by cell in the order of the map, for all
    words. Random model: the rank correlation with the map of a model whose weights are random; a map that depends on
    what was learned is near 0. Under noise: that with the maps of photos with noise that is hardly visible; a stable
    map is near 1. On pixels and under noise, 20 photos at most are measured, and 5 with random weights.
    """
    for subject in _with_methods(table, subjects):
        captioner, images = subject.captioner, scales.images_of(subject.captions)
        # Each word takes many passes of the encoder: those that name something with a box, if there are any.
        naming = {word for several in subject.images.naming.values() for word in several}
        boxed = {word for photo in subject.images.boxed for name in photo.boxes for word in name.split()}
        blurred = partial(areas_by_blurring, captioner, words=naming or boxed or None)
        for method in subject.methods:
            on_pixels = subject.on_scale("pixels", method, blurred, SAMPLE)
            noise = partial(scales.under_noise, captioner, method)
            noisy = subject.on_scale("noise", method, noise, SAMPLE, True)["similarity"]
            areas = [Value(known_mean(on_pixels[kind], images[: len(on_pixels[kind])])) for kind in CURVES]
            similar = [[*subject.with_random_layers[method].values()][-1], noisy]
            correlations = [Value(known_mean(values, images[: len(values)]), 2) for values in similar]
            table.add([[method, *areas, *correlations]], subject.name)


@measure("model", "random down to", on=[OF_MAPS])
def random_layers(table: AnalysisTable, subjects: Subjects) -> None:
    """Does the map depend on what each layer has learned?

    Layers get random weights one after the other, from the words down to the pixels (Adebayo et al. 2018). The rank
    correlation of the maps with those of the trained model, on 5 photos at most, once all layers down to this one are
    random: a map that depends on them is near 0.
    """
    table.head = [*table.head, *subjects[0].methods]
    for subject in _with_methods(table, subjects):
        images = scales.images_of(subject.captions[:RANDOM_SAMPLE])
        by_method = subject.with_random_layers
        for layer in by_method[subject.methods[0]]:
            cells = [Value(known_mean(of_layers[layer], images), 2) for of_layers in by_method.values()]
            table.add([cells], subject.name, layer)


@measure("model", "map", "and", "rank correlation", on=[OF_MAPS])
def map_agreement(table: AnalysisTable, subjects: Subjects) -> None:
    """Do the methods agree?

    Spearman's rank correlation over the regions, of every two methods' maps of each word.
    """
    for subject in _with_methods(table, subjects, least=2):
        for first, second in combinations(subject.methods, 2):
            maps = [subject.drawn[method].captions for method in (first, second)]
            agreed = known_mean(scales.similarity(*maps), scales.images_of(maps[0]))
            table.add([[first, second, Value(agreed, 2)]], subject.name)


def _by_class(subject: Subject, measured: Measured) -> dict[str, Measured]:
    """The measurements of each class of words that has any, and those of all other words."""
    classes = {**subject.images.naming, **subject.images.other_words}
    parts = {name: measured.only(words) for name, words in classes.items()}
    parts["other words"] = measured.only(set(measured.words).difference(*classes.values()))
    return {name: part for name, part in parts.items() if len(part)}
