"""Maps that the mechanism itself made while it wrote the caption: its own weights, their mean, one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caption.analysis.map_arithmetic import TINY
from caption.analysis.maps.method import Draw
from caption.analysis.maps.trial import Trial
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.models.transformers.decoder import on_first_grid
from caption.results.caption import Caption

LEAST = 1e-12
"""Nats of an even map: a mean of even maps has weights, too."""
SINK = 2.0
"""A region is a sink if its share is at least this many times an even one, for every word of every photo. On
validation scenes of Shapes, maps without sinks stay what they are from 1 on; see docs/results/foreign.md."""


def magnitude(trial: Trial) -> Tensor:
    """|α_i| of the word's own step."""
    return trial.step.weights.abs()[:, None]


def own_weights(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """The weights as they are; see `Caption.weights`."""
    return list(captions)


def mean(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """The mean of all maps (heads, hops, layers) on the grid of the weights; without further maps, the weights. What a
    head of other people's captioners reads of a coarser view of the photo is added to its map."""
    return [_mean_of(caption, lambda maps: maps) for caption in captions]


def concentrated(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
    """The mean of all maps, each weighted by the square of Σ α log(α / mean α) over all regions but its highest one.

    The default of captioners of other people's code, see `ForeignDecoder`.
    """

    def weighted(maps: np.ndarray) -> np.ndarray:
        rest = np.sort(np.abs(maps).reshape(*maps.shape[:2], math.prod(maps.shape[2:])))[..., :-1]
        rest = np.maximum(rest, TINY)
        nats = np.maximum((rest * np.log(rest / rest.mean(-1, keepdims=True))).sum(-1), LEAST)
        return maps * (nats**2 / (nats**2).mean(1, keepdims=True))[..., None, None]

    return [_mean_of(caption, weighted) for caption in captions]


def without_sinks(
    captioner: Captioner, photos: Sequence[Photo], captions: Sequence[Caption], sink: float = SINK
) -> list[Caption]:
    """The mean of all maps, without the regions that a map reads whatever the photo and the word are.

    Such regions ("sinks", Xiao et al. 2024; "registers", Darcet et al. 2024) lie on borders and plain background. In
    each map, a region whose share is at least `sink` / L for every word of every photo gets 0, and the others share its
    weight in proportion. It takes two photos, since a region that all words of one photo read may be its object.
    """
    spoken = [caption for caption in captions if caption.words]
    lowest = np.min([_stacked(caption).min(0) for caption in spoken], axis=0)  # (maps, rows, cols)
    sinks = lowest >= sink / lowest[0].size

    def rescaled(maps: np.ndarray) -> np.ndarray:
        left = np.where(sinks, 0, maps)
        total, rest = (np.abs(values).sum((-2, -1), keepdims=True) for values in (maps, left))
        return left * (total / np.where(rest > 0, rest, 1))

    return [_mean_of(caption, rescaled) for caption in captions]


def single_map(label: str) -> Draw:
    """One of the mechanism's maps by its label, such as "layer 3 heads[5]"; "layer 3 heads" is the mean of that layer.

    The method raises a UserError if a caption has no such map.
    """

    def draw(captioner: Captioner, photos: Sequence[Photo], captions: Iterable[Caption]) -> list[Caption]:
        return [_labelled(caption, label) for caption in captions]

    return draw


def _labelled(caption: Caption, label: str) -> Caption:
    singles = caption.single_maps(label if label in caption.maps else None)
    if label not in caption.maps and label not in singles:
        has = ", ".join(caption.maps) or "none but its weights"
        raise UserError(f"there is no map {label!r}: the maps of this model's mechanism are {has}")
    chosen = list(singles.values()) if label in caption.maps else [singles[label]]
    return chosen[0].with_weights(np.mean([single.weights for single in chosen], 0))


def _stacked(caption: Caption) -> np.ndarray:
    """(T, maps, rows, cols) all maps on the grid of the weights; the weights, if there are no others."""
    steps, *grid = caption.weights.shape
    maps = [
        _with_second_view(caption, name).reshape(steps, math.prod(values.shape[1:-2]), *grid)
        for name, values in caption.maps.items()
        if values.shape[-2:] == tuple(grid) and name.removesuffix("second") + "heads" not in caption.maps
    ]
    return np.concatenate(maps, 1) if maps else caption.weights[:, None]


def _with_second_view(caption: Caption, name: str) -> np.ndarray:
    """(T, ..., rows, cols) a map; that of heads of other people's captioners with what they read of the second view,
    which shows the same part of the photo (`ForeignDecoder`)."""
    heads = caption.maps[name]
    second = caption.maps.get(name.removesuffix("heads") + "second")
    if second is None:
        return heads
    grids: Any = heads.shape[-2:], second.shape[-2:]
    of_first, of_second = (torch.from_numpy(of_view).flatten(-2) for of_view in (heads, second))
    return on_first_grid(of_first, of_second, grids).numpy().reshape(heads.shape)


def _mean_of(caption: Caption, change: Callable[[np.ndarray], np.ndarray]) -> Caption:
    weights = change(_stacked(caption)).mean(1)
    sums_to_one = bool(np.allclose(weights.sum((1, 2)), 1, atol=1e-3)) or caption.properties.sentinel
    return caption.with_weights(weights, caption.properties._replace(sums_to_one=sums_to_one))
