"""Agreement of models: do they attend to the same places for the same words?

They are fed the same caption, and their maps are compared word by word. Maps agree to some degree only because both
lie on objects rather than on background; comparing with maps of other words and other images measures that degree.

    agreement = agree({"soft": soft, "hard": hard}, photos)["soft", "hard"]
    agreement.measures["same cell"].mean(), agreement.other_word["same cell"].mean()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np
import torch

from caption.analysis.baseline_maps import other_steps
from caption.analysis.map_statistics import divergence
from caption.analysis.per_word import PerWord
from caption.analysis.reference_attention import attend
from caption.analysis.replay import PhotoNumbers, iter_photos
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.results.caption import Caption


@dataclass(frozen=True, repr=False)
class Agreement(PerWord):
    """N words, each with the maps of two models compared: see `compare_maps` for the measures."""

    measures: Mapping[str, np.ndarray]
    """(N,) by name."""
    other_word: Mapping[str, np.ndarray]
    """(N,) the same with the second model's map of another word of the caption; NaN where there is no other."""
    other_image: Mapping[str, np.ndarray]
    """(N,) with the second model's map of the next photo's caption, same step or its last; NaN for a single photo.
    Captions of one photo are not compared with each other."""

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        return self.measures


def agree(
    models: Mapping[str, Captioner],
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> dict[tuple[str, str], Agreement]:
    """Compare the maps of every two models that are fed the same captions, by the models' names in the order given.

    Args:
        models: by name; the measures of a pair do not depend on its order.
        photos, captions, batch_size: see `replay.sentences`; None = the captions that the first model generates.
        seed: for drawing the other words.

    Raises:
        UserError: the models' grids differ, or one has no attention.
        ValueError: photos and captions differ in number.
    """
    photos = list(iter_photos(photos))
    numbers, fed = list(map(PhotoNumbers().add, photos)), dict[str, list[Caption]]()
    for name, captioner in models.items():
        fed[name] = attend(captioner, photos, captions, batch_size)
        captions = fed[name]
    return {
        (first, second): _compare(fed[first], fed[second], numbers, seed)
        for first, second in combinations(fed, 2)
    }


def _compare(first: list[Caption], second: list[Caption], numbers: list[int], seed: int) -> Agreement:
    """The agreement of two models' maps for the same captions, with the number of each caption's photo."""
    pairs = [(a.weights, b.weights) for a, b in zip(first, second, strict=True) if a.words]
    if any(a.shape != b.shape for a, b in pairs):
        raise UserError("the two models have different grids, so their maps cannot be compared")
    of_pairs = [number for number, caption in zip(numbers, first, strict=True) if caption.words]
    of_words = [number for number, (weights, _) in zip(of_pairs, pairs, strict=True) for _ in weights]
    words = tuple(word for caption in first for word in caption.words)
    generator = np.random.default_rng(seed)
    grid = pairs[0][0].shape[1:] if pairs else (1, 1)
    of_first, same, other_word, other_image = ([np.zeros((0, *grid))] for _ in range(4))
    for number, (weights, maps) in enumerate(pairs):
        in_turn = chain(range(number + 1, len(pairs)), range(number))
        other = next((place for place in in_turn if of_pairs[place] != of_pairs[number]), None)
        of_first.append(weights)
        same.append(maps)
        other_word.append(maps[other_steps(len(maps), generator)] if len(maps) > 1 else maps * np.nan)
        following = maps * np.nan if other is None else pairs[other][1]
        other_image.append(following[np.minimum(np.arange(len(weights)), len(following) - 1)])
    compared = (
        compare_maps(*map(np.concatenate, (of_first, maps))) for maps in (same, other_word, other_image)
    )
    return Agreement(words, np.array(of_words, dtype=np.int64), *compared)


def compare_maps(first: Any, second: Any) -> dict[str, np.ndarray]:
    """The similarity of each of N pairs of maps.

    Args:
        first, second: (N, ...) weights; each map is taken as a distribution |α_i| / Σ_j |α_j|.

    Returns:
        (N,) by name, NaN where a map is: "divergence", the Jensen-Shannon divergence in bits, 0 for equal maps to 1
        for maps that share no region; "overlap" Σ_i min(α_i, α'_i), 1 to 0; "rank correlation", Spearman's, over the
        regions, 0 where a map is constant; "same cell", whether both have their maximum in one region: where several
        regions tie for it, the share of them that both maps have. A map without any weight counts as NaN.
    """
    p, q = _distributions(first), _distributions(second)
    at_maximum = [maps == maps.max(-1, keepdims=True) for maps in (p, q)]
    ties = np.maximum(*(cells.sum(-1) for cells in at_maximum))
    unknown = np.isnan(p).any(-1) | np.isnan(q).any(-1)
    measures = {
        "divergence": divergence(torch.from_numpy(p), torch.from_numpy(q)).numpy(),
        "overlap": np.minimum(p, q).sum(-1),
        "rank correlation": rank_correlation(p, q),
        "same cell": (at_maximum[0] & at_maximum[1]).sum(-1) / np.maximum(ties, 1),
    }
    return {name: np.where(unknown, np.nan, values) for name, values in measures.items()}


def _distributions(maps: Any) -> np.ndarray:
    flat = np.abs(np.asarray(maps, dtype=np.float64))
    flat = flat.reshape(len(flat), int(np.prod(flat.shape[1:])))
    with np.errstate(invalid="ignore"):  # 0 / 0
        return flat / flat.sum(-1, keepdims=True)


def rank_correlation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """(N,) Spearman's rank correlation of each row of two (N, L); 0 where a row is constant."""
    return _correlation(_ranks(first), _ranks(second))


def _ranks(maps: np.ndarray) -> np.ndarray:
    """(N, L): the rank of each region in its map; equal weights share the mean of their ranks."""
    ranks = np.empty_like(maps)
    for row, values in enumerate(maps):
        _, which, count = np.unique(values, return_inverse=True, return_counts=True)
        ranks[row] = (np.cumsum(count) - (count - 1) / 2)[which]
    return ranks


def _correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = x - x.mean(-1, keepdims=True), y - y.mean(-1, keepdims=True)
    spread = np.sqrt((x**2).sum(-1) * (y**2).sum(-1))
    return (x * y).sum(-1) / np.where(spread > 0, spread, 1)
