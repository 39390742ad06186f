"""Readings of a lens: the things that the encoder sees where the decoder looked.

Importing this module does not load PyTorch; `caption.analysis.lens` makes readings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

OUT_OF_DISTRIBUTION = "this photo is unlike the training photos"
LEAST_SEEN = 0.5
"""The smallest probability with which text, figures and pages show a thing."""
SURE_IN_REGION = 0.95
"""The smallest probability in a single region with which a thing is listed as in the photo. The largest one of many
regions is high for absent things, too; see docs/lens.md."""


class Seen(NamedTuple):
    """A thing, in one noun, and the probability that it is there."""

    noun: str
    probability: float

    def __str__(self) -> str:
        return f"{self.noun} {self.probability:.1f}"


class Doubt(NamedTuple):
    """A word of the caption that contradicts what the encoder sees there."""

    step: int
    """The word's place, counted from 0."""
    says: str
    sees: str
    probability: float
    """Of `sees`."""

    def __str__(self) -> str:
        return f"sees {self.sees} where the caption says {self.says}"


@dataclass(frozen=True)
class LensReading:
    """The reading of a lens for the T words of a caption.

    Attributes:
        words: for each word, the likeliest things in its context, likeliest first.
        classes: for each word, the names of the likeliest classes with their softmax, not calibrated.
        photo: the likeliest things in the plain average of the regions, as for `words`.
        doubts: words at which the lens is sure of another thing.
        out_of_distribution: whether the photo is unlike those of the lens's calibration; None if that is not known.
        calibrated: False if the probabilities are the classifier's own, which are too high where a map is sharp.
        regions: the likeliest thing in each single region, in the rows of the grid.
    """

    words: list[list[Seen]]
    classes: list[list[tuple[str, float]]]
    photo: list[Seen]
    doubts: list[Doubt] = field(default_factory=list)
    out_of_distribution: bool | None = None
    calibrated: bool = True
    regions: list[list[Seen]] = field(default_factory=list)

    def seen(self, step: int, least: float = 0.0) -> Seen | None:
        """The likeliest thing at a word if its probability is at least `least`, else None."""
        things = self.words[step]
        return things[0] if things and things[0].probability >= least else None

    @property
    def things(self) -> list[Seen]:
        """The things that are sure in a single region, each once, likeliest first; empty without a calibration."""
        in_regions = (thing for row in self.regions for thing in row)
        return distinct_things(in_regions, SURE_IN_REGION) if self.calibrated else []

    @property
    def remarks(self) -> list[str]:
        """What is said about the caption without being asked for: an unlike photo, and the doubts."""
        unlike = [OUT_OF_DISTRIBUTION] if self.out_of_distribution else []
        return unlike + [f"the lens {doubt}" for doubt in self.doubts]

    def with_remarks_alone(self) -> LensReading:
        """The same without the things that it sees, for outputs of which only the remarks are a part."""
        nothing: list[Any] = [[] for _ in self.words]
        return replace(self, words=nothing, classes=nothing, photo=[], regions=[])

    def to_dict(self) -> dict[str, Any]:
        """In types that `json.dumps` accepts; None for regions where nothing is likely."""
        return {
            "words": [[[noun, round(p, 4)] for noun, p in things] for things in self.words],
            "classes": [[[name, round(p, 4)] for name, p in classes] for classes in self.classes],
            "photo": [[noun, round(p, 4)] for noun, p in self.photo],
            "doubts": [
                doubt._asdict() | {"probability": round(doubt.probability, 4)} for doubt in self.doubts
            ],
            "out_of_distribution": self.out_of_distribution,
            "calibrated": self.calibrated,
            "regions": [
                [[noun, round(p, 4)] if p >= LEAST_SEEN else None for noun, p in row] for row in self.regions
            ],
            "things": [[noun, round(p, 4)] for noun, p in self.things],
        }


def distinct_things(things: Iterable[Seen], least: float = LEAST_SEEN) -> list[Seen]:
    """The things of probability `least` or more, each once with its largest probability, likeliest first."""
    largest: dict[str, float] = {}
    for noun, probability in things:
        if probability >= max(least, largest.get(noun, 0.0)):
            largest[noun] = probability
    return sorted(
        (Seen(*item) for item in largest.items()), key=lambda thing: (-thing.probability, thing.noun)
    )
