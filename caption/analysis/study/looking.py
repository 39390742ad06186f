"""Where does it look? Measures of maps beside boxes, beside other models' maps and by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from caption.analysis.agreement import Agreement, agree
from caption.analysis.map_statistics import changes, entropies, measure_maps, unseen
from caption.analysis.per_word import known_mean
from caption.analysis.pointing_game import Grounding
from caption.analysis.study.measure import Subjects, measure
from caption.analysis.study.subject import MIDDLE, OTHER_IMAGE, OWN, Subject
from caption.analysis.table import AnalysisTable, Cell, Value, share
from caption.core.errors import UserError, first_few
from caption.metrics.significance import Estimate, estimate
from caption.results.caption import Caption

GAIN = f"{OWN} less {MIDDLE}"
NEED_BOXES = (
    "Give boxes of objects with --boxes: COCO's instances_*.json, or a JSON object of photos by name, each with its "
    "size and objects."
)
NEED_MODELS = "Give several models, each as --model NAME=MODEL."


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
            if OTHER_IMAGE not in subject.groundings:
                table.notes.append(
                    f"The photos have several grids in {subject.name}, so there is no mean map, and no map of another "
                    "image."
                )
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


def _grounding_rows(subject: Subject) -> Iterator[list[Cell]]:
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


def _agreement_rows(part: Agreement) -> Iterator[list[Cell]]:
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
        table.add([["its own", *_map_cells(subject.captions, range(len(subject.captions)))]], subject.name)
        if subject.images.references and subject.pointed.captions:
            captions, _, images = subject.pointed
            table.add([["people's, with boxes", *_map_cells(captions, images)]], subject.name)


def _map_cells(captions: Sequence[Caption], images: Sequence[int] | np.ndarray) -> list[Cell]:
    """H[α] and log L in nats, the share of α that moves from word to word, that of regions hardly looked at; with the
    number of each caption's photo."""

    def over_captions(measure: Callable[[Caption], np.ndarray]) -> Estimate:
        values = [measure(caption) for caption in captions]
        of_values = np.repeat(images, [len(several) for several in values])
        return known_mean(np.concatenate(values), of_values)

    log_l = f"{measure_maps(captions)['attention_entropy_max']:.2f}"
    hardly = over_captions(lambda caption: np.array([unseen(caption)]))
    return [Value(over_captions(entropies), 2), log_l, Value(over_captions(changes), 2), share(hardly)]
