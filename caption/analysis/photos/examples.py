"""The photos with a model's best and worst maps, as examples for a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from caption.analysis.photos.study import PhotoStudy
from caption.analysis.pointing_game import Pointing
from caption.data.boxes import Boxes
from caption.result import Caption

MOST = 6
"""Examples of each kind."""


class Example(NamedTuple):
    """A word of a caption and its map."""

    caption: Caption
    word: int
    """Its place in the caption."""
    boxes: Boxes
    """Of what the word names; {} without boxes."""
    verdict: str
    """Such as "hit, 81 % of α in the box"."""


class Examples(NamedTuple):
    """One word of each photo, best or worst first."""

    best: list[Example]
    worst: list[Example]
    measure: str
    """By what they were chosen, in words."""


def examples(study: PhotoStudy, most: int = MOST) -> Examples:
    """The photos with the best and the worst maps, at most so many of each and no photo twice.

    With boxes, photos are ordered by how often the maps hit and how much of them lies in the boxes beyond chance;
    without, by how much more the words lose when regions are hidden in the order of α than at random. A photo is shown
    by its best, or worst, word.
    """
    if study.pointing is not None:
        measure = "pointing and mass in the box, beyond that of an even map"
        words = _pointings(study.pointing.own.pointings, study.fed, study.pointing.photos)
    else:
        measure = "how much faster p(word) falls in the order of α than at random"
        words = _falls(study)
    photos = sorted(
        words, key=lambda photo: float(np.mean([score for score, _ in words[photo]])), reverse=True
    )
    half = min(most, len(photos) // 2)

    def pick(chosen: Sequence[int], sign: int) -> list[Example]:
        return [max(words[photo], key=lambda word: sign * word[0])[1] for photo in chosen]

    return Examples(pick(photos[:half], 1), pick(photos[::-1][:half], -1), measure)


def _pointings(
    pointings: Sequence[Pointing], captions: Sequence[Caption], photos: np.ndarray
) -> Mapping[int, list[tuple[float, Example]]]:
    """By photo, the score of each word that has a box."""
    words: dict[int, list[tuple[float, Example]]] = {}
    for one in pointings:
        score = one.hit + one.mass - one.mass_chance
        even = f"an even map: {100 * one.mass_chance:.0f} %"
        verdict = f"{'hit' if one.hit else 'miss'}, {100 * one.mass:.0f} % of α in the box ({even})"
        boxes = {one.mention.name: one.mention.boxes}
        example = Example(captions[one.caption], one.mention.word, boxes, verdict)
        words.setdefault(int(photos[one.caption]), []).append((score, example))
    return words


def _falls(study: PhotoStudy) -> Mapping[int, list[tuple[float, Example]]]:
    """By photo, how much each word of the model's caption depends on its map."""
    gains = study.curves.area("deletion", "random") - study.curves.area("deletion", "attention")
    words: dict[int, list[tuple[float, Example]]] = {}
    for photo, gain in zip(study.curves.images.tolist(), gains.tolist(), strict=True):
        of_photo = words.setdefault(photo, [])
        verdict = f"p(word) falls by {gain:.2f} more in the order of α"
        of_photo.append((gain, Example(study.captions[photo], len(of_photo), {}, verdict)))
    return words
