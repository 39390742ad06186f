"""Deletion and insertion on pixels: the photo is blurred cell by cell, in the order of a map (Petsiuk et al. 2018).

Unlike the curves of `caption.analysis.faithfulness`, which hide regions from a word's own step, this changes what the
encoder sees, for all words of the caption: the model is fed the same caption for the changed photo.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import get_args

import numpy as np
from PIL import Image, ImageFilter

from caption.analysis.faithfulness.curves import Kind
from caption.analysis.maps.scales import seed_of
from caption.analysis.reference_attention import attend
from caption.captioner import Captioner
from caption.core.box import cell_edges
from caption.data.photos import Photo, open_image
from caption.results.caption import Caption

RADIUS = 1 / 20
"""Standard deviation of the blur, as a share of the photo's shorter side."""
POINTS = 9
"""Points of a curve, the whole and the blurred photo included."""


def areas_by_blurring(
    captioner: Captioner,
    photos: Sequence[Photo],
    captions: Sequence[Caption],
    drawn: Sequence[Caption],
    words: Collection[str] | None = None,
) -> dict[Kind, np.ndarray]:
    """(N,) areas under deletion and insertion of each word: its mean probability on the way.

    Args:
        captioner: the model.
        photos: of the captions.
        captions: whose words it is fed.
        drawn: the same captions with the maps; the highest weights are blurred, or shown, first.
        words: those that are measured; others get NaN; None = all.

    Raises:
        caption.core.errors.ImageError: a photo cannot be read.
    """
    generator = np.random.default_rng(seed_of(captions))
    areas = [np.zeros((2, 0))]
    for photo, caption, maps in zip(photos, captions, drawn, strict=True):
        sharp = open_image(photo).convert("RGB")
        blurred = sharp.filter(ImageFilter.GaussianBlur(RADIUS * min(sharp.size)))
        cells = cells_of_pixels(maps, sharp.size)
        areas.append(np.full((2, len(caption.words)), np.nan))
        for step, word in enumerate(caption.words):
            if words is not None and word not in words:
                continue
            weights = maps.weights[step].ravel()
            ranks = np.lexsort((generator.random(weights.size), -weights)).argsort()  # ties at random
            counts = np.linspace(0, ranks.size, POINTS).round()
            hidden = [ranks < count for count in counts] + [ranks >= count for count in counts]
            masks = (Image.fromarray(255 * of_cells[cells].astype(np.uint8)) for of_cells in hidden)
            changed: list[Photo] = [Image.composite(blurred, sharp, mask) for mask in masks]
            fed = attend(captioner, changed, [caption] * len(changed))
            curves = np.exp([np.float64(of_photo.word_log_probs[step]) for of_photo in fed])
            areas[-1][:, step] = np.trapezoid(curves.reshape(2, POINTS), counts / ranks.size, axis=1)
    return dict(zip(get_args(Kind), np.concatenate(areas, 1), strict=True))


def cells_of_pixels(caption: Caption, size: tuple[int, int]) -> np.ndarray:
    """(height, width) int64: the cell of the caption's grid, row by row, that each pixel of its photo lies in.

    Pixels that the model has not seen belong to the nearest cell.
    """
    rows, cols = caption.weights.shape[1:]
    edges = cell_edges(rows, cols, caption.box, caption.seen)
    across, down = (
        (np.searchsorted(sides, np.arange(length) + 0.5, side="right") - 1).clip(0, count - 1)
        for sides, length, count in zip(edges, size, (cols, rows), strict=True)
    )
    return down[:, None] * cols + across
