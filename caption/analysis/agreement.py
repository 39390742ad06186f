"""Agreement of models: do they attend to the same places for the same words?

They are fed the same caption, and their maps are compared word by word. Maps agree to some degree only because both
lie on objects rather than on background; comparing with maps of other words and other images measures that degree.

    agreement = agree(soft, hard, photos)
    agreement.measures["same cell"].mean(), agreement.other_word["same cell"].mean()

    agree_all({"seed 0": first, "seed 1": second, "seed 2": third}, photos, captions)     # every pair
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch

from caption.analysis.map_statistics import divergence
from caption.analysis.per_word import PerWord
from caption.analysis.replay import Replay, iter_photos, sentences
from caption.captioner import Captioner
from caption.data.decoding import Photo
from caption.errors import UserError
from caption.result import Caption


@dataclass(frozen=True)
class Agreement(PerWord):
    """N words, each with the maps of two models compared: see `compare_maps` for the measures."""

    measures: Mapping[str, np.ndarray]
    """(N,) by name."""
    other_word: Mapping[str, np.ndarray]
    """(N,) the same with the second model's map of another word of the caption; NaN where there is no other."""
    other_image: Mapping[str, np.ndarray]
    """(N,) with the second model's map of the next photo's caption, same step or its last; NaN for a single photo."""


def agree(
    first: Captioner,
    second: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> Agreement:
    """Compare the maps of two models that are fed the same captions.

    Args:
        first, second: the models; their order does not matter to the measures.
        photos, captions, batch_size: see `replay.sentences`; None = the captions that `first` generates.
        seed: for which other word is taken.

    Raises:
        UserError: the models' grids differ, or one has no attention.
        ValueError: photos and captions differ in number.
    """
    (agreement,) = agree_all({"first": first, "second": second}, photos, captions, seed, batch_size).values()
    return agreement


def agree_all(
    models: Mapping[str, Captioner],
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> dict[tuple[str, str], Agreement]:
    """Compare every two models, by their names in the order given; each is fed the captions once.

    Args and errors as for `agree`; without captions, those that the first model generates.
    """
    photos = list(iter_photos(photos))
    maps: dict[str, list[np.ndarray]] = {}
    replayed = None if captions is None else list(captions)
    for name, captioner in models.items():
        replayed, maps[name] = _maps(captioner, photos, replayed, batch_size)
    return {
        (first, second): _compared(replayed or [], maps[first], maps[second], seed)
        for first, second in combinations(maps, 2)
    }


def _compared(
    replayed: list[Caption], ours: list[np.ndarray], theirs: list[np.ndarray], seed: int
) -> Agreement:
    """The agreement of the maps (T, rows, cols) that two models have for the same captions."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if len(a)]
    if any(a.shape != b.shape for a, b in pairs):
        raise UserError("the two models look at different grids, so their maps cannot be compared")
    images = [number for number, caption in enumerate(replayed) for _ in caption.words]
    words = tuple(word for caption in replayed for word in caption.words)
    generator = np.random.default_rng(seed)
    if not pairs:
        empty = compare_maps(np.zeros((0, 1)), np.zeros((0, 1)))
        return Agreement((), np.zeros(0, dtype=np.int64), empty, empty, empty)
    mine = np.concatenate([a for a, _ in pairs])
    same = np.concatenate([b for _, b in pairs])
    shuffled = np.concatenate([_other_words(b, generator) for _, b in pairs])
    following = [pairs[(number + 1) % len(pairs)][1] for number in range(len(pairs))]
    displaced = np.concatenate(
        [b[np.minimum(np.arange(len(a)), len(b) - 1)] for (a, _), b in zip(pairs, following, strict=True)]
    )
    if len(pairs) == 1:
        displaced = np.full_like(displaced, np.nan)
    compared = [compare_maps(mine, others) for others in (same, shuffled, displaced)]
    return Agreement(words, np.array(images, dtype=np.int64), *compared)


def compare_maps(first: Any, second: Any) -> dict[str, np.ndarray]:
    """The similarity of two maps, N times.

    Args:
        first, second: (N, ...) weights; each map is taken as a distribution |α_i| / Σ_j |α_j|.

    Returns:
        (N,) by name, NaN where a map is: "divergence", the Jensen-Shannon divergence in bits, 0 for equal maps to 1
        for maps that share no region; "overlap" Σ_i min(α_i, α'_i), 1 to 0; "rank correlation", Spearman's, over the
        regions, 0 where a map is constant; "same cell", whether both have their maximum in one region.
    """
    p, q = _distributions(first), _distributions(second)
    unknown = np.isnan(p).any(-1) | np.isnan(q).any(-1)
    measures = {
        "divergence": divergence(torch.from_numpy(p), torch.from_numpy(q)).numpy(),
        "overlap": np.minimum(p, q).sum(-1),
        "rank correlation": rank_correlation(p, q),
        "same cell": (p.argmax(-1) == q.argmax(-1)).astype(np.float64),
    }
    return {name: np.where(unknown, np.nan, values) for name, values in measures.items()}


def _maps(
    captioner: Captioner, photos: list[Any], captions: Iterable[Caption] | None, batch_size: int
) -> tuple[list[Caption], list[np.ndarray]]:
    """The captions, and the model's maps (T, rows, cols) when it is fed them."""
    replay = Replay(captioner.decoder)
    replayed: list[Caption] = []
    maps: list[np.ndarray] = []
    for batch in sentences(captioner, photos, captions, batch_size):
        weights = replay.weights(batch).unflatten(-1, batch.views[0].grid).double().cpu().numpy()
        maps += [weights[row, :length] for row, length in enumerate(batch.lengths.tolist())]
        replayed += batch.captions
    return replayed, maps


def _other_words(maps: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    words = len(maps)
    if words == 1:
        return np.full_like(maps, np.nan)
    return maps[(np.arange(words) + generator.integers(1, words, size=words)) % words]


def _distributions(maps: Any) -> np.ndarray:
    flat = np.abs(np.asarray(maps, dtype=np.float64))
    flat = flat.reshape(len(flat), int(np.prod(flat.shape[1:])))
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
