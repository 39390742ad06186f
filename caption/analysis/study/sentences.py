"""What does it say? Measures of captions beside those of people."""

from __future__ import annotations

from caption.analysis.chair import chair as measure_chair
from caption.analysis.named_groups import AGREE, GROUPS, count_named, named_rows
from caption.analysis.sense import nonsense as measure_nonsense
from caption.analysis.sense import persons as measure_persons
from caption.analysis.study.measure import Subjects, measure
from caption.analysis.study.subject import Subject
from caption.analysis.table import AnalysisTable, share
from caption.core.errors import first_few

NEED_REFERENCES = (
    "Give people's captions with --references: COCO's captions JSON, a token file, CSV, JSON lines or Karpathy's "
    "JSON."
)
NEED_CATEGORIES = (
    "Give COCO's instances_*.json with --boxes, in which the objects of all categories are annotated: of all photos, "
    "or of those whose ids it lists as its key 'all'."
)


@measure("model", "people agree on", "photos", *(f"says {group}" for group in GROUPS))
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


@measure("model", "captions", "mentions", "CHAIRi", "CHAIRs")
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


@measure("model", "photos without people", "captions with a person")
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


@measure("model", "captions", "nonsense", "people's captions")
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
