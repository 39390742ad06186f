"""How many heads does a model need? The probability of its words while heads are removed, least important first.

A head is removed by setting its map to 0, so that it adds nothing to the context. Its importance is the mean fall of
log p of the words when it alone is removed (Michel et al. 2019, "Are Sixteen Heads Really Better than One?", who
estimate this by gradients; here it is measured). Only one step is changed at a time. The model is not trained
again; `caption.objectives.AttentionPenalty` removes heads in training.

    pruning = head_pruning(captioner, photos)
    pruning.order                          # heads, least important first
    pruning.log_probs.mean(0)              # with none removed, one, two, ...
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from caption.analysis.per_word import Measurements, PerWord
from caption.analysis.replay import Maps, Replay, Step, iter_photos, sentences
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.results.caption import Caption


@dataclass(frozen=True, repr=False)
class HeadPruning(PerWord):
    """N words of a model with H heads, counted through the maps of all its attentions."""

    order: tuple[int, ...]
    """The heads in the order in which they were removed."""
    importances: tuple[float, ...]
    """Of each head, in nats, in this order."""
    log_probs: np.ndarray
    """(N, H + 1) log p of each word with the first 0 to H heads of the order removed."""


def head_pruning(
    captioner: Captioner, photos: Photo | Iterable[Photo], captions: Iterable[Caption] | None = None
) -> HeadPruning:
    """Remove heads, least important first, and measure log p of every word.

    Args:
        captioner, photos, captions: see `replay.sentences`. The end word is not measured.

    Raises:
        UserError: the decoder has no attention, or a single map for each word.
        ValueError: photos and captions differ in number, or there are no words.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    photos = list(iter_photos(photos))
    captions = captioner.describe(photos) if captions is None else list(captions)
    heads = count_heads(captioner, photos, captions)
    if heads < 2:
        raise UserError("this model has a single map for each word: take one with several heads or hops")
    none_or_one = torch.cat((torch.zeros(1, heads), torch.eye(heads))).bool()
    mean = _pruned(captioner, photos, captions, none_or_one).log_probs.mean(0)
    falls = mean[0] - mean[1:]
    order = np.argsort(falls, kind="stable")
    first = torch.arange(heads + 1)[:, None] > torch.from_numpy(np.argsort(order))
    pruned = _pruned(captioner, photos, captions, first)
    return replace(pruned, order=tuple(order.tolist()), importances=tuple(falls[order].tolist()))


def count_heads(captioner: Captioner, photos: Iterable[Photo], captions: Iterable[Caption]) -> int:
    """The number of a word's maps that lie on grids; ValueError if no caption has words."""
    replay = Replay(captioner.decoder)
    for photo, caption in zip(photos, captions, strict=True):
        if caption.words:
            (batch,) = sentences(captioner, photo, [caption])
            maps = replay.grid_maps(next(replay.steps(batch)))
            return sum(math.prod(map_.shape[2:-1]) for map_ in maps)
    raise ValueError("heads are measured at words, and these captions have none")


def _pruned(
    captioner: Captioner, photos: list[Photo], captions: list[Caption], removed: Tensor
) -> HeadPruning:
    """Log p (N, K) of every word without each of K sets of heads, (K, H) bool."""
    replay, measured = Replay(captioner.decoder), Measurements()
    for batch in sentences(captioner, photos, captions):
        for step in replay.steps(batch):
            log_probs = replay.rerun(step, _without(replay, step, removed.to(step.weights.device)))
            measured.add(batch, step, {"log_probs": step.of_word(log_probs)})
    return measured.result(HeadPruning, {}, order=(), importances=())


def _without(replay: Replay, step: Step, removed: Tensor) -> Maps:
    """The step's maps with K of each, in which the removed heads, (K, H) bool, are 0."""
    remaining, kept = iter(removed.unbind(1)), []
    for map_ in replay.grid_maps(step):
        structure = map_.shape[2:-1]
        of_map = torch.stack([next(remaining) for _ in range(math.prod(structure))], 1)
        kept.append(map_ * ~of_map.view(len(removed), *structure, 1))
    return replay.with_grid_maps(kept, step)
