"""Does attention on photos lie on what the word names? The pointing game, with people's captions and boxes of objects.

The model is fed the captions word by word. For each word that has a box, the cell with the most attention hits if its
centre lies in a box of that name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from caption.analysis import baseline_maps
from caption.analysis.faithfulness.curves import faithfulness_curves
from caption.analysis.faithfulness.rankings import AtRandom, Order, by_attention
from caption.analysis.map_statistics import entropies
from caption.analysis.per_word import Estimate, difference, estimate
from caption.analysis.pointing_game import Grounding, ground
from caption.analysis.posterior_attention import posterior
from caption.analysis.reference_attention import attend_references
from caption.captioner import Captioner
from caption.data.boxes import Boxes
from caption.data.decoding import open_image
from caption.data.files import field, object_list, read_json, shortened
from caption.errors import DataError, UserError
from caption.metrics.significance import Comparison

OWN, MIDDLE = "own maps", "middle cell"
DRAWS = 3
"""Random orders of deletion."""


class BoxedPhoto(NamedTuple):
    """A photo and the boxes of its objects."""

    path: Path
    boxes: Boxes
    """By the words for what is in them."""
    kinds: Mapping[str, str]
    """What kind of thing a word names, such as "person"."""


class PhotoPointing(NamedTuple):
    """The pointing game of one model."""

    groundings: dict[str, Grounding]
    """By the maps that were used: the model's own, its posterior maps, which know the word, and maps that know less."""
    of_kinds: dict[str, Grounding]
    """The model's own maps at the words of each kind."""
    photos: np.ndarray
    """The number of each caption's photo."""
    entropy: float
    """Mean over all words, in nats."""
    regions: int
    faithfulness: Comparison
    """Area under the deletion curve of the captions that the model writes, at random less by attention."""

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
            "entropy": self.entropy,
            "faithfulness": self.faithfulness.difference,
        }


def read_boxes(file: Path, folder: Path) -> Iterator[BoxedPhoto]:
    """The photos of a folder that a JSON file has boxes of.

    The file is an object: by the name of a photo, its `size` (width, height) in pixels, and `objects`, each with a
    `kind`, the `names` that captions call it, and a `box` (left, top, right, bottom).

    Raises:
        UserError: the file has another form, a photo is missing, or has another size than the one that its boxes were
            drawn on.
    """
    for name, entry in read_json(file).items():
        where = f"{shortened(name)} in '{file}'"
        boxes: dict[str, list[Sequence[float]]] = {}
        kinds = {}
        for thing in object_list(entry, "objects", where):
            kind, box = field(thing, "kind", str, where), _numbers(thing, "box", 4, where)
            for word in map(str, field(thing, "names", list, where)):
                boxes.setdefault(word, []).append(box)
                kinds[word] = kind
        drawn_on, size = _numbers(entry, "size", 2, where), open_image(folder / name).size
        if list(size) != drawn_on:
            raise UserError(
                f"'{folder / name}' has {'x'.join(map(str, size))} pixels, and its boxes were drawn on "
                f"{'x'.join(map(str, drawn_on))}: give the folder of these photos with --photos"
            )
        yield BoxedPhoto(folder / name, boxes, kinds)


def _numbers(entry: Mapping[str, Any], key: str, count: int, where: str) -> list[float]:
    """`entry[key]`, which must be so many numbers."""
    numbers = field(entry, key, list, where)
    if len(numbers) != count or not all(isinstance(number, (int, float)) for number in numbers):
        raise DataError(f"{where} has {shortened(numbers)} as '{key}', not {count} numbers: use another file")
    return numbers


def point(
    captioner: Captioner, boxed: Sequence[BoxedPhoto], references: Sequence[Sequence[str]]
) -> PhotoPointing:
    """Play the pointing game with the model's maps and with baselines, on people's captions of each photo."""
    photos = [str(photo.path) for photo in boxed]
    captions = attend_references(captioner, photos, references)
    numbers = [number for number, texts in enumerate(references) for _ in texts]
    maps = {
        OWN: captions,
        "posterior": posterior(captioner, [photos[number] for number in numbers], captions),
        MIDDLE: baseline_maps.middle(captions),
        "mean map": baseline_maps.mean_map(captions),
        "another photo": baseline_maps.other_image(captions, images=numbers),
    }
    boxes = [boxed[number].boxes for number in numbers]
    groundings = {name: ground(zip(of, boxes, strict=True)) for name, of in maps.items()}
    of_kinds = {}
    for kind in sorted({kind for photo in boxed for kind in photo.kinds.values()}):
        of_kind = [
            {word: box for word, box in boxed[number].boxes.items() if boxed[number].kinds[word] == kind}
            for number in numbers
        ]
        of_kinds[kind] = ground(zip(captions, of_kind, strict=True))
    orders: dict[str, Order] = {"attention": by_attention, "random": AtRandom(DRAWS)}
    curves = faithfulness_curves(captioner, photos, orders=orders)
    attention, random = (curves.area("deletion", name) for name in orders)
    return PhotoPointing(
        groundings,
        of_kinds,
        np.array(numbers),
        float(np.mean(np.concatenate([entropies(caption) for caption in captions]))),
        math.prod(captions[0].weights.shape[1:]),
        difference(attention, random, curves.images),
    )
