"""Augmentation of training images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from caption.core.errors import DataError


def mirror(pixels: Tensor) -> Tensor:
    """Pixels (..., H, W) with left and right exchanged."""
    return pixels.flip(-1)


@dataclass(frozen=True)
class HorizontalFlip:
    """Mirrors a training image with some probability, unless one of its captions names a side.

    A mirrored image needs mirrored captions. Exchanging "left" and "right" would be wrong in "left the house" and
    "right behind", so images with such words are never mirrored. Writing in the image is mirrored, too.

    Args:
        probability: of an image to be mirrored, each time it is used.
        sides: words of the captions' language that name a side, in lower case.
        features: folder of the mirrored training images' regions (`caption features --mirrored`), for training on
            precomputed regions; None = mirror pixels.

    Raises:
        DataError: the probability is not between 0 and 1.
    """

    probability: float = 0.5
    sides: Sequence[str] = ("left", "right", "leftmost", "rightmost", "lefthand", "righthand")
    features: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise DataError(f"the probability of a flip is {self.probability}: it must be between 0 and 1")

    def mirrors(self, captions: Sequence[str], random: np.random.Generator) -> bool:
        """Whether an image with these captions is mirrored this time."""
        words = {word for caption in captions for word in re.findall(r"\w+", caption.lower())}
        return random.random() < self.probability and words.isdisjoint(self.sides)
