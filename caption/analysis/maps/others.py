"""Methods that other modules of the room compute, and baselines that do not ask the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from caption.analysis import baseline_maps
from caption.analysis.lens.lens import lens_of, regions_of
from caption.analysis.maps.method import placed
from caption.analysis.self_attention.rollout import rollout, tower_rollout
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.models.transformers.captioner import ForeignCaptioner
from caption.results.caption import Caption


def rolled_out(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """The weights, carried back through the self-attention of the regions; see `attention_rollout`.

    Raises:
        UserError: the regions have no self-attention, or mix in another way, too.
    """
    if isinstance(captioner, ForeignCaptioner):
        return tower_rollout(captioner, photos, list(captions))
    return rollout(captioner, photos, captions)


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


def mean_map(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """The mean of the weights of all words of all photos; see `baseline_maps.mean_map`."""
    return baseline_maps.mean_map(_several(captions))


def other_photo(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """The weights of another photo; see `baseline_maps.other_image`."""
    return baseline_maps.other_image(_several(captions))


def middle(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """The cell in the middle; see `baseline_maps.middle`."""
    return baseline_maps.middle(captions)


def chance(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """Random numbers, uniform from 0 to 1, scaled to the sum 1."""
    generator = np.random.default_rng(0)
    drawn = []
    for caption in captions:
        weights = generator.random(caption.weights.shape)
        drawn.append(caption.with_weights(weights / weights.sum((1, 2), keepdims=True)))
    return drawn


def _several(captions: Iterable[Caption]) -> list[Caption]:
    captions = list(captions)
    spoken = [caption for caption in captions if caption.words]
    if len(spoken) < 2 or len({caption.weights.shape[1:] for caption in spoken}) > 1:
        raise UserError("this map is made of the maps of other photos: give two or more photos, on one grid")
    return captions
