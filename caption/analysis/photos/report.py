"""Studies of models on photos as the parts of a report: each a question, its answer with intervals, and a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caption.analysis.agreement import Agreement
from caption.analysis.map_statistics import measure_maps
from caption.analysis.named_groups import AGREE, GROUPS
from caption.analysis.photos.pointing import MIDDLE, OWN, POSTERIOR, PhotoPointing
from caption.analysis.photos.study import PhotoStudy
from caption.analysis.table_rows import (
    Cell,
    Rows,
    Value,
    agreement_rows,
    grounding_values,
    known,
    map_values,
    named_rows,
    order_rows,
    permutation_rows,
    share,
    share_of,
)
from caption.errors import first_few

NEED_BOXES = (
    "Give boxes of objects with --boxes: COCO's instances_*.json, or a JSON object of photos by name, each with its "
    "size and objects."
)
NEED_REFERENCES = (
    "Give people's captions with --references: COCO's captions JSON, a token file, CSV, JSON lines or Karpathy's "
    "JSON."
)
NEED_MODELS = "Give several models, each as --model NAME=MODEL."

TITLES = {
    "grounding": (
        "Does it look at what it names?",
        "The pointing game: for every word that names something with a box, the most attended cell should lie in such "
        "a box (or mask). Maps that know less are the measure: the middle of the photo, where people put things; the "
        "mean of the model's maps; its maps of another photo. Posterior maps know the word. The mass is the share of "
        "attention in the boxes. This says where it looked, not that the word comes from there.",
    ),
    "faithfulness": (
        "Do its words depend on where it looks?",
        "Deletion hides the regions of one word one after the other, and insertion shows them, in the order of the "
        "attention α or at random; the area is the word's mean probability on the way. If α says what matters, "
        "deletion in its order lowers the probability faster than at random, and insertion raises it faster.",
    ),
    "permutation": (
        "Do its words depend on this map?",
        "Each word is said again with other weights at its step: permuted, even, of another word, of another photo. "
        "The fall of log p is in nats; distance is the total variation between both predictions; changed says how "
        "often another word becomes the likeliest. A word that stays the same did not need its map.",
    ),
    "agreement": (
        "Do the models look at the same places?",
        "All are fed the captions of the first, and their maps compared word by word. Divergence is Jensen-Shannon's "
        "in bits, 0 for equal maps; overlap is the mass in common; same cell says how often both have their maximum "
        "there. The same with maps of another word and photo is the level that any two maps reach.",
    ),
    "entropy": (
        "How concentrated are its maps?",
        "H[α] is the entropy in nats, from 0, one region, to log L, all alike; e to the H is the number of regions "
        "over which attention is spread. Change is the share of α that moves from one word to the next; hardly looked "
        "at are regions with less than 0.1 in a whole caption.",
    ),
    "named": (
        "Who is named?",
        f"Photos count for a group if at least {AGREE} people's captions name it and none names another one. The table "
        'says how often the model\'s caption names each group there: a model that says "man" of women more often than '
        '"woman" of men has learnt who is more frequent. Intervals are Wilson\'s.',
    ),
}
"""Title and meaning of each part, in the order of the report."""


@dataclass
class Part:
    """One question about the models."""

    name: str
    """A key of `TITLES`."""
    findings: list[str] = field(default_factory=list)
    """The answer: a sentence for each model, with 95 % intervals."""
    head: Sequence[str] = ()
    rows: list[list[Cell]] = field(default_factory=list)
    headline: tuple[str, str] = ("", "")
    """The first number, and of what it is."""
    missing: str = ""
    """If it could not be measured: why, and what would bring it."""
    notes: list[str] = field(default_factory=list)

    def lead(self, number: object, of_what: str) -> None:
        """Set the headline, unless another model has."""
        self.headline = self.headline if self.headline[0] else (str(number), of_what)

    @property
    def title(self) -> str:
        return TITLES[self.name][0]

    @property
    def meaning(self) -> str:
        return TITLES[self.name][1]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a list of rows, each with its cells by the heads of their columns."""
        if self.missing:
            return {"title": self.title, "missing": self.missing}
        rows = [dict(zip(self.head, map(_plain, row), strict=True)) for row in self.rows]
        return {"title": self.title, "findings": self.findings, "notes": self.notes, "rows": rows}


@dataclass
class Given:
    """What a report was made of, for the parts that need it."""

    boxes: bool = False
    """Whether boxes were given."""
    references: bool = False
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The words for the objects of each category of COCO files."""


def make_parts(
    studies: Sequence[PhotoStudy], agreements: Mapping[tuple[str, str], Agreement] | str, given: Given
) -> list[Part]:
    """The parts of a report, in the order of `TITLES`.

    Args:
        studies: of models, at least one.
        agreements: of pairs of models; or why there are none.
        given: what was given.
    """
    return [
        _grounding(studies, given),
        _faithfulness(studies),
        _permutation(studies),
        _agreement(agreements),
        _entropy(studies),
        _named(studies, given),
    ]


def _grounding(studies: Sequence[PhotoStudy], given: Given) -> Part:
    part = Part("grounding", head=("model", "maps", "words", "pointing accuracy", "mass in the box"))
    if not given.boxes:
        part.missing = NEED_BOXES
    elif all(study.pointing is None for study in studies):
        categories = first_few(given.words) if given.words else "an object of the boxes"
        part.missing = (
            f"No word of the captions, or those of one photo alone, names {categories}: give the boxes of what is in "
            "these photos" + ("." if given.references else ", or people's captions with --references.")
        )
    for study in studies:
        if study.pointing is not None:
            part.findings.append(_grounding_finding(study.name, study.pointing))
            part.lead(share(study.pointing.accuracy), "of words hit")
            part.rows += ([study.name, *row] for row in _grounding_rows(study.pointing))
            if unnamed := _unnamed(study, given.words):
                part.notes.append(
                    f"{len(unnamed)} of {len(given.words)} categories are named by no word of the captions: "
                    f"{first_few(unnamed)}."
                )
    part.notes = list(dict.fromkeys(part.notes))
    return part


def _unnamed(study: PhotoStudy, words: Mapping[str, Sequence[str]]) -> list[str]:
    """The categories that no word of the captions of the pointing game names."""
    said = " ".join(f" {' '.join(caption.words).lower()} " for caption in study.fed)
    return [category for category, called in words.items() if not any(f" {word} " in said for word in called)]


def _grounding_finding(name: str, pointing: PhotoPointing) -> str:
    own, above, middle = pointing.accuracy, pointing.above_the_middle, pointing.groundings[MIDDLE].accuracy
    return (
        f"{name}: at {share(own)} of {len(pointing.own)} words the most attended cell lies on what the word names; the "
        f"middle of the photo would at {100 * middle:.0f} %, so the maps gain {100 * above.difference:+.0f} points "
        f"[{100 * above.low:+.0f}, {100 * above.high:+.0f}]."
    )


def _grounding_rows(pointing: PhotoPointing) -> Rows:
    kinds = {f"{OWN}, {kind}": of for kind, of in pointing.of_kinds.items()}
    others = {name: of for name, of in pointing.groundings.items() if name != OWN}
    shown = {OWN: pointing.own, **kinds, **others}
    if POSTERIOR in shown:
        shown["posterior maps"] = shown.pop(POSTERIOR)
    for name, grounding in shown.items():
        values = grounding_values(grounding, pointing.photos[grounding.captions])
        yield [name, len(grounding), *(share(value.of) for value in values)]
    chances = (f"{100 * chance:.0f} %" for chance in (pointing.own.chance, pointing.own.mass_chance))
    yield ["any cell (chance)", len(pointing.own), *chances]


def _faithfulness(studies: Sequence[PhotoStudy]) -> Part:
    part = Part("faithfulness", head=("model", "order", "area, deletion", "area, insertion"))
    for study in studies:
        gain = study.faithfulness
        part.lead(f"{gain.difference:.3f} [{gain.low:.3f}, {gain.high:.3f}]", "below random orders")
        part.findings.append(
            f"{study.name}: hiding regions in the order of α lowers the probability of a word by {gain.difference:.3f} "
            f"[{gain.low:.3f}, {gain.high:.3f}] more than hiding them at random."
        )
        part.rows += ([study.name, *row] for row in order_rows(study.curves))
    return part


def _permutation(studies: Sequence[PhotoStudy]) -> Part:
    part = Part("permutation", head=("model", "weights", "fall of log p", "distance", "changed"))
    for study in studies:
        fall = Value(known(study.permutation.falls["permuted"], study.permutation), 2)
        changed = share(known(study.permutation.changed["permuted"], study.permutation))
        part.lead(changed, "of the likeliest words change")
        part.findings.append(
            f"{study.name}: with its weights permuted a word loses {fall} nats, and {changed} of the likeliest words "
            "change."
        )
        part.rows += ([study.name, *row] for row in permutation_rows(study.permutation))
    return part


def _agreement(agreements: Mapping[tuple[str, str], Agreement] | str) -> Part:
    part = Part("agreement", head=("models", "measure", "same word", "another word", "another photo"))
    if isinstance(agreements, str):
        part.missing = agreements
        return part
    for names, agreement in agreements.items():
        same = share(known(agreement.measures["same cell"], agreement))
        other = share(known(agreement.other_word["same cell"], agreement))
        part.lead(same, "of words at the same cell")
        part.findings.append(
            f"{' and '.join(names)}: at {same} of {len(agreement)} words both look most at the same cell; with the map "
            f"of another word of the caption at {other}."
        )
        part.rows += ([" / ".join(names), *row] for row in agreement_rows(agreement))
    return part


def _entropy(studies: Sequence[PhotoStudy]) -> Part:
    part = Part("entropy", head=("model", "captions", "H[α]", "change", "hardly looked at"))
    for study in studies:
        largest = measure_maps(study.captions)["attention_entropy_max"]
        values = map_values(study.captions)
        part.lead(values[0], f"of log L = {largest:.2f} nats")
        finding = (
            f"{study.name}: in its own captions H[α] is {values[0]} of log L = {largest:.2f} nats, as if α were even "
            f"over {math.exp(values[0].of.mean):.0f} of {math.exp(largest):.0f} regions"
        )
        part.rows.append([study.name, "its own", *values])
        if study.fed and not any(fed is own for fed in study.fed for own in study.captions):
            people = map_values(study.fed)
            part.rows.append([study.name, "people's, with boxes", *people])
            finding += f"; in people's {people[0]}"
        part.findings.append(f"{finding}.")
    return part


def _named(studies: Sequence[PhotoStudy], given: Given) -> Part:
    part = Part("named", head=("model", "people agree on", "photos", *(f"says {group}" for group in GROUPS)))
    counted = {study.name: study.named for study in studies}
    if not given.references:
        part.missing = NEED_REFERENCES
    elif not any(images for counts in counted.values() for images, _ in counts.values()):
        part.missing = (
            f"There is no photo of which {AGREE} people's captions name the same group, such as man, woman or dog, and "
            "no other: give more captions of each photo, or more photos."
        )
    if part.missing:
        return part
    for name, counts in counted.items():
        part.rows += ([name, *row] for row in named_rows(counts))
        (men, of_men), (women, of_women) = counts["man"], counts["woman"]
        if men and women:
            called_men, called_women = share_of(of_women["man"], women), share_of(of_men["woman"], men)
            part.lead(called_men, "of women are called men")
            part.findings.append(
                f'{name}: of {women} photos of women its captions say "man" at {called_men}, and of {men} photos of '
                f'men "woman" at {called_women}.'
            )
        else:
            part.lead(f"{men} and {women}", "photos of men and women: too few")
            part.findings.append(
                f"{name}: {men} photos are of men, and {women} of women: too few to compare."
            )
    return part


def _plain(cell: Cell) -> Any:
    """A cell for JSON."""
    if not isinstance(cell, Value):
        return cell
    return None if math.isnan(cell.of.mean) else cell.of._asdict()
