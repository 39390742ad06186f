"""Whether words depend on the regions that were looked at: a measurement of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from caption import checkpoint
from caption.analysis.faithfulness.curves import faithfulness_curves
from caption.analysis.faithfulness.rankings import AtRandom, by_attention
from caption.captioner import Captioner
from caption.data.readers.captions import CaptionReader
from caption.parts import make

ERASED = 100
"""Test images whose words have their regions deleted."""
DRAWS = 3
"""Random orders for each word."""


def test_photos(best: Path) -> list[str]:
    """The first images of the test split that a checkpoint's data has."""
    images = make(checkpoint.read(best)["data"]["reader"], CaptionReader).read()["test"]
    return [str(image.path) for image in images[:ERASED]]


def deletion(captioner: Captioner, photos: Sequence[str]) -> dict[str, list[float]] | None:
    """Area under the deletion curve of the words, in the order of attention and in random orders: means by image.

    None if the captions have no words, as after too little training.
    """
    captions = captioner.describe(list(photos))
    if not any(caption.words for caption in captions):
        return None
    orders = {"attention": by_attention, "random": AtRandom(DRAWS)}
    curves = faithfulness_curves(captioner, list(photos), captions, orders)
    images, words = np.unique(curves.images, return_counts=True)
    areas = {name: np.bincount(curves.images, curves.area("deletion", name))[images] for name in orders}
    means = {name: (sums / words).round(5).tolist() for name, sums in areas.items()}
    return {"images": images.tolist(), "words": words.tolist(), **means}
