"""How many heads does a model need? The probability of its words while heads are removed, least important first.

A head is removed by setting its weights of all regions to 0. Its importance is the mean fall of
log p of the words when it alone is removed (Michel et al. 2019, "Are Sixteen Heads Really Better than One?", who
estimate this by gradients; here it is measured). Only one step is changed at a time. The model is not trained
again; `caption.objectives.AttentionPenalty` removes heads in training.

    pruning = head_pruning(captioner, photos)
    pruning.order                          # heads, least important first
    pruning.log_probs.mean(0)              # with none removed, one, two, ...
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from caption.analysis.per_word import Measurements, PerWord
from caption.analysis.replay import Maps, Replay, Step, iter_photos, sentences
from caption.attention.map_hooks import attentions
from caption.attention.maps import named_maps, with_maps
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.results.caption import Caption


@dataclass(frozen=True, repr=False)
class HeadPruning(PerWord):
    """N words of a model with H heads, hops or queries, counted through all its attentions."""

    order: tuple[int, ...]
    """The heads in the order in which they were removed."""
    importances: tuple[float, ...]
    """Of each head, in nats, in this order."""
    log_probs: np.ndarray
    """(N, H + 1) log p of each word with the first 0 to H heads of the order removed."""

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Log p of the word by the number of heads removed."""
        return {f"{number} removed": values for number, values in enumerate(self.log_probs.T)}


def head_pruning(
    captioner: Captioner, photos: Photo | Iterable[Photo], captions: Iterable[Caption] | None = None
) -> HeadPruning:
    """Remove heads, least important first, and measure log p of every word.

    Args:
        captioner, photos, captions: see `replay.sentences`. The end word is not measured.

    Raises:
        UserError: the decoder has no attention, or fewer than two heads.
        ValueError: photos and captions differ in number, or there are no words.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    photos = list(iter_photos(photos))
    captions = captioner.describe(photos) if captions is None else list(captions)
    heads = count_heads(captioner, photos, captions)
    if heads < 2:
        raise UserError("this model has fewer than two heads: take one with several heads, hops or queries")
    none_or_one = torch.cat((torch.zeros(1, heads), torch.eye(heads))).bool()
    mean = _pruned(captioner, photos, captions, none_or_one).log_probs.mean(0)
    falls = mean[0] - mean[1:]
    order = np.argsort(falls, kind="stable")
    first = torch.arange(heads + 1)[:, None] > torch.from_numpy(np.argsort(order))
    pruned = _pruned(captioner, photos, captions, first)
    return replace(pruned, order=tuple(order.tolist()), importances=tuple(falls[order].tolist()))


def count_heads(captioner: Captioner, photos: Iterable[Photo], captions: Iterable[Caption]) -> int:
    """The number of heads, hops or queries of all attentions; ValueError if no caption has words."""
    replay = Replay(captioner.decoder)
    for photo, caption in zip(photos, captions, strict=True):
        if caption.words:
            (batch,) = sentences(captioner, photo, [caption])
            return sum(map(math.prod, _axes_of_heads(replay, next(replay.steps(batch))).values()))
    raise ValueError("heads are measured at words, and these captions have none")


def _axes_of_heads(replay: Replay, step: Step) -> dict[str, torch.Size]:
    """Sizes of the dimensions between K and L of each attention's first map; attentions without any are left out."""
    axes = {
        name: named_maps(step.maps[name])[next(iter(attention.map_views))].shape[2:-1]
        for name, attention in attentions(replay.decoder).items()
    }
    return {name: sizes for name, sizes in axes.items() if sizes}


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
    """The step's maps with K of each, in which the removed heads, (K, H) bool, are 0 on the grids of all views."""
    maps, views, of_decoder = dict(step.maps), [view.grid for view in step.views], attentions(replay.decoder)
    axes = _axes_of_heads(replay, step)
    parts = removed.split(list(map(math.prod, axes.values())), 1)
    for (name, sizes), part in zip(axes.items(), parts, strict=True):
        kept, by_label = ~part.view(len(removed), *sizes, 1), named_maps(maps[name])
        of_heads = [label for label in of_decoder[name].grids(views) if by_label[label].shape[2:-1] == sizes]
        maps[name] = with_maps(maps[name], {label: by_label[label] * kept for label in of_heads})
    return maps
