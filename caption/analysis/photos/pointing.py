"""Does attention on photos lie on what the word names? The pointing game, with captions and boxes of objects.

For each word that has a box, the cell with the most attention hits if its centre lies in a box of that name. Captions
are people's, which the model is fed word by word, or the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from caption.analysis import baseline_maps
from caption.analysis.pointing_game import Grounding, ground
from caption.analysis.posterior_attention import posterior
from caption.captioner import Captioner
from caption.data.photo_boxes import BoxedPhoto
from caption.metrics.significance import Comparison, Estimate, difference, estimate
from caption.result import Caption

OWN, POSTERIOR, MIDDLE = "own maps", "posterior", "middle cell"
MEAN, OTHER = "mean map", "another photo"


class PhotoPointing(NamedTuple):
    """The pointing game of one model."""

    groundings: dict[str, Grounding]
    """By the maps that were used: the model's own, its posterior maps, which know the word, and maps that know less."""
    of_kinds: dict[str, Grounding]
    """The model's own maps at the words of each kind."""
    photos: np.ndarray
    """(N,) the number of each caption's photo among those that were given."""

    @property
    def own(self) -> Grounding:
        return self.groundings[OWN]

    @property
    def accuracy(self) -> Estimate:
        """How often the model's own maps hit, with an interval over photos."""
        return estimate(self.own.values("hit"), self.photos[self.own.captions])

    @property
    def above_the_middle(self) -> Comparison:
        """The accuracy of the model's own maps less that of always the middle cell, paired."""
        photos = self.photos[self.own.captions]
        return difference(self.groundings[MIDDLE].values("hit"), self.own.values("hit"), photos)

    def numbers(self) -> dict[str, float]:
        accuracies = {name: of.accuracy for name, of in (self.groundings | self.of_kinds).items()}
        return accuracies | {
            "above the middle": self.own.accuracy - self.groundings[MIDDLE].accuracy,
            "chance": self.own.chance,
            "mass": self.own.mass,
            "words": len(self.own),
        }


def point(
    captioner: Captioner,
    boxed: Sequence[BoxedPhoto],
    captions: Sequence[Caption],
    photos: Sequence[int],
    advance: Callable[[int], None] = lambda count: None,
) -> PhotoPointing | None:
    """Play the pointing game with the model's maps and with baselines; None if no word has a box.

    Args:
        captioner: the model.
        boxed: the photos.
        captions: with the model's maps, such as `caption.analysis.attend_references` gives people's.
        photos: the number of each caption's photo.
        advance: called with the number of photos whose posterior maps, the slowest of all, are begun.

    Raises:
        ValueError: there are fewer than two photos that have captions with words.
    """
    boxes = [boxed[number].boxes for number in photos]
    own = ground(zip(captions, boxes, strict=True)).present
    if not len(own):
        return None
    maps = {}
    if not captioner.decoder.properties.signed:  # posterior attention needs probabilities
        maps[POSTERIOR] = _posterior(captioner, boxed, captions, photos, advance)
    maps |= {
        MIDDLE: baseline_maps.middle(captions),
        MEAN: baseline_maps.mean_map(captions),
        OTHER: baseline_maps.other_image(captions, images=photos),
    }
    groundings = {name: ground(zip(of, boxes, strict=True)).present for name, of in maps.items()}
    of_kinds = {}
    for kind in sorted({kind for photo in boxed for kind in photo.kinds.values()}):
        pointings = tuple(
            one for one in own.pointings if boxed[photos[one.caption]].kinds.get(one.mention.name) == kind
        )
        if pointings:
            of_kinds[kind] = Grounding(pointings, own.measured)
    return PhotoPointing({OWN: own} | groundings, of_kinds, np.array(photos))


def _posterior(
    captioner: Captioner,
    boxed: Sequence[BoxedPhoto],
    captions: Sequence[Caption],
    photos: Sequence[int],
    advance: Callable[[int], None],
) -> list[Caption]:
    def paths() -> Iterator[str]:
        begun: set[int] = set()
        for number in photos:
            advance(number not in begun)
            begun.add(number)
            yield str(boxed[number].path)

    return posterior(captioner, paths(), captions)
