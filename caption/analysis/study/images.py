"""The images of a study, with their annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from caption.analysis import baseline_maps
from caption.analysis.per_word import Measured
from caption.data.photo_boxes import BoxedPhoto
from caption.data.shapes import Shapes
from caption.data.shapes.scene import COLOURS, Scene, random_scene
from caption.data.shapes.silhouettes import SHAPES
from caption.results.caption import Caption

TRAINING_SCENES = 500
"""Scenes for the width of the centre prior and for the mean region."""


@dataclass(frozen=True)
class Images:
    """The images of a study. Only the photos are required; each further field makes more measures possible."""

    photos: Sequence[str]
    """Paths; each photo is taken once."""
    boxed: Sequence[BoxedPhoto] = ()
    """Those of the photos that have boxes."""
    references: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """People's captions of photos, by their paths."""
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The words for the objects of each category of COCO files."""
    naming: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Words that name things, by class, such as colours; words of a class may be exchanged. Given if the truth about
    every word is known: naming a thing without a box is then a miss, and measures of words are about these words."""
    other_words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Further classes of words."""
    training: Sequence[str] = ()
    """Other images, whose mean region replaces hidden ones."""
    sigma: float | None = None
    """Width of the centre prior, fitted to other images; see `baseline_maps.fit_sigma`."""
    scenes: Sequence[Scene] = ()
    """Of the photos, if they are scenes of Shapes, from which objects can be taken out."""

    def __post_init__(self) -> None:
        # ./a.jpg and a.jpg are one photo, whether it is asked for by its path, its boxes or its captions.
        object.__setattr__(self, "photos", list(dict.fromkeys(str(Path(photo)) for photo in self.photos)))
        references = {str(Path(photo)): texts for photo, texts in self.references.items()}
        object.__setattr__(self, "references", references)

    @classmethod
    def of_shapes(cls, folder: Path, count: int) -> Images:
        """A number of scenes of the test split of Shapes, which are written to a folder."""
        reader = Shapes(str(folder), train=TRAINING_SCENES, val=1, test=count)
        splits, boxes = reader.read(), reader.boxes("test")
        paths = [str(image.path) for image in splits["test"]]
        boxed = [BoxedPhoto(image.path, boxes[image.id], {}) for image in splits["test"]]
        sides = (0, 0, reader.size, reader.size)
        return cls(
            paths,
            boxed,
            naming={"colours": frozenset(COLOURS), "shapes": frozenset(SHAPES)},
            other_words={"relations": frozenset(("above", "below", "left", "right"))},
            training=[str(image.path) for image in splits["train"]],
            sigma=baseline_maps.fit_sigma((objects, sides) for objects in reader.boxes("train").values()),
            scenes=[random_scene(reader.seed, "test", number, reader.size) for number in range(1, count + 1)],
        )

    @property
    def pointed_at(self) -> list[BoxedPhoto]:
        """Photos of the pointing game: those with people's captions if there are any, else all with boxes."""
        if not self.references:
            return list(self.boxed)
        return [photo for photo in self.boxed if str(photo.path) in self.references]

    def about(self, measured: Measured) -> Measured:
        """The words that measures are about: those of `naming` if it is given, else all."""
        return measured.only(frozenset().union(*self.naming.values())) if self.naming else measured


class Pointed(NamedTuple):
    """The captions of the pointing game: people's captions, which the model is fed, or its own."""

    captions: list[Caption]
    photos: list[BoxedPhoto]
    """Of each caption; one may come several times."""
    images: np.ndarray
    """(N,) int64 the number of each caption's photo."""
