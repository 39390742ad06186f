"""The map of the lens: where the encoder sees the thing that a word names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from caption.analysis.lens.lens import lens_of, regions_of
from caption.analysis.maps.method import placed
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.results.caption import Caption


def seen_by_lens(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """For each word that the lens knows, the probability of the thing in each single region; for other words 0.

    Raises:
        UserError: the captioner has no lens.
    """
    lens = lens_of(captioner)
    if lens is None:
        raise UserError(
            "this model has no lens: load it with caption.load(..., lens=True), or take another method"
        )
    drawn = []
    for photo, caption in zip(photos, captions, strict=True):
        fitted = captioner.read(photo)
        regions = regions_of(captioner.encode([fitted]), 0)
        maps = [
            lens.map_of(regions, word)[0].numpy() if lens.nouns.of_word(word) else np.zeros(regions.grid)
            for word in caption.words
        ]
        weights = np.stack(maps) if maps else np.zeros((0, *regions.grid))
        steps = caption.with_weights(np.zeros((len(maps), 1, 1)))
        drawn.append(placed(captioner, steps, fitted, weights))
    return drawn
