"""Where a model looks on photos, and whether that is why it says it: all measurements of one model.

What needs boxes or people's captions is measured on the photos that have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from caption.analysis.agreement import Agreement, agree_all
from caption.analysis.faithfulness.curves import FaithfulnessCurves, faithfulness_curves
from caption.analysis.faithfulness.permutation import Permutation, permute
from caption.analysis.faithfulness.rankings import AtRandom, Order, by_attention
from caption.analysis.map_statistics import entropies
from caption.analysis.named_groups import count, named
from caption.analysis.photos.pointing import PhotoPointing, point
from caption.analysis.reference_attention import attend_references
from caption.captioner import Captioner
from caption.data.photo_boxes import BoxedPhoto
from caption.errors import ImageError, UserError
from caption.metrics.significance import Comparison, difference
from caption.result import Caption
from caption.runtime.progress import counted
from caption.text.tokenizer import get_tokenizer

DRAWS = 3
"""Random orders of deletion."""
ORDERS: dict[str, Order] = {"attention": by_attention, "random": AtRandom(DRAWS)}

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Called with an activity and the number of photos; see `caption.runtime.progress.progress_bar`."""


@dataclass(frozen=True)
class PhotoSet:
    """What models are measured on."""

    photos: Sequence[str]
    """Paths."""
    boxed: Sequence[BoxedPhoto] = ()
    """Those of the photos that have boxes."""
    references: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """People's captions of photos, by their paths."""

    @property
    def pointed_at(self) -> list[BoxedPhoto]:
        """Photos of the pointing game: with people's captions if there are any, else all with boxes."""
        if not self.references:
            return list(self.boxed)
        return [photo for photo in self.boxed if str(photo.path) in self.references]


@dataclass(frozen=True)
class PhotoStudy:
    """All that was measured of one model."""

    name: str
    captioner: Captioner
    captions: list[Caption]
    """The model's own, one of each photo."""
    fed: list[Caption]
    """The captions of the pointing game: people's, which the model was fed, or its own."""
    pointing: PhotoPointing | None
    """None without boxes, or if no word names what has one."""
    curves: FaithfulnessCurves
    """Of the model's own captions."""
    permutation: Permutation
    named: dict[str, tuple[int, dict[str, int]]]
    """Whom it names where people agree, see `caption.analysis.named_groups.count`; {} without references."""

    @property
    def entropy(self) -> float:
        """Mean of H[α] over all words of `fed`, people's captions where there are references, in nats."""
        return float(np.mean(np.concatenate([entropies(caption) for caption in self.fed])))

    @property
    def faithfulness(self) -> Comparison:
        """The area under the deletion curve at random less that by attention."""
        attention, random = (self.curves.area("deletion", order) for order in ORDERS)
        return difference(attention, random, self.curves.images)


def study_photos(
    name: str,
    captioner: Captioner,
    images: PhotoSet,
    captions: Sequence[Caption] | None = None,
    progress: Progress = lambda activity, total: nullcontext(lambda count: None),
) -> PhotoStudy:
    """Measure one model.

    Args:
        name, captioner: the model.
        images: what it is measured on.
        captions: the model's own of all photos, if they are known.
        progress: shows how far the work is.

    Raises:
        UserError: fewer than two photos have captions with words, or the model has no attention.
        caption.errors.ImageError: a photo cannot be read.
    """
    photos = list(images.photos)
    if captions is None:
        captions = _captions(name, captioner, photos, progress)
    if (spoken := sum(map(bool, (caption.words for caption in captions)))) < 2:
        raise UserError(
            f"--model {name}: {spoken} of its {len(captions)} captions have words, and maps are exchanged between two: "
            "take another model, or more photos"
        )
    with progress(f"{name}: deletion and insertion", len(photos)) as advance:
        curves = faithfulness_curves(captioner, counted(photos, advance), captions, ORDERS)
    with progress(f"{name}: permuted maps", len(photos)) as advance:
        permutation = permute(captioner, counted(photos, advance), captions)
    fed, pointing = _point(name, captioner, images, captions, progress)
    return PhotoStudy(
        name, captioner, list(captions), fed, pointing, curves, permutation, _named(photos, captions, images)
    )


def _captions(name: str, captioner: Captioner, photos: Sequence[str], progress: Progress) -> list[Caption]:
    captions = []
    with progress(f"{name}: captioning", len(photos)) as advance:
        for caption in captioner.describe_each(photos):
            if isinstance(caption, ImageError):
                raise caption
            captions.append(caption)
            advance(1)
    return captions


def _point(
    name: str, captioner: Captioner, images: PhotoSet, captions: Sequence[Caption], progress: Progress
) -> tuple[list[Caption], PhotoPointing | None]:
    """The captions of the pointing game, and its result; None if no word names what has a box."""
    boxed = images.pointed_at
    if images.references:
        texts = [images.references[str(photo.path)] for photo in boxed]
        fed = attend_references(captioner, [str(photo.path) for photo in boxed], texts)
        numbers = [number for number, several in enumerate(texts) for _ in several]
    else:
        by_path = dict(zip(map(Path, images.photos), captions, strict=True))
        fed, numbers = [by_path[photo.path] for photo in boxed], list(range(len(boxed)))
    if len({number for number, caption in zip(numbers, fed, strict=True) if caption.words}) < 2:
        return fed, None  # maps are exchanged between photos
    with progress(f"{name}: pointing game", len(boxed)) as advance:
        return fed, point(captioner, boxed, fed, numbers, advance)


def agreements(
    studies: Sequence[PhotoStudy],
    photos: Sequence[str],
    progress: Progress = lambda activity, total: nullcontext(lambda count: None),
) -> dict[tuple[str, str], Agreement]:
    """How far the maps of every two models agree on the captions of the first, by their names.

    Raises:
        UserError: two models have different grids.
    """
    with progress("agreement", len(photos) * len(studies)) as advance:
        models = {study.name: study.captioner for study in studies}
        found = agree_all(models, list(photos), studies[0].captions)
        advance(len(photos) * len(studies))
    return found


def _named(
    photos: Sequence[str], captions: Sequence[Caption], images: PhotoSet
) -> dict[str, tuple[int, dict[str, int]]]:
    if not images.references:
        return {}
    tokenize = get_tokenizer("ptb")
    people = {photo: [named(tokenize(text)) for text in texts] for photo, texts in images.references.items()}
    said = {
        photo: named(tokenize(caption.text))
        for photo, caption in zip(photos, captions, strict=True)
        if photo in people
    }
    return count(people, said)
