"""Words said again under other maps: permuted, even, of another word, of another image.

If a word comes out the same whatever α is, α is not a reason for it (Jain and Wallace 2019, "Attention is not
Explanation"). If it changes, what is read matters to this model; this does not show that no other α would do as well
(Wiegreffe and Pinter 2019, "Attention is not not Explanation"). Only one step is changed at a time.

    permuted = permute(captioner, "photo.jpg")
    permuted.falls["permuted"].mean()          # nats that the words lose
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from caption.analysis.map_arithmetic import Grid, spread, sums
from caption.analysis.per_word import Collected, PerWord
from caption.analysis.replay import Maps, Moment, Replay, Sentences, sentences
from caption.result import Caption
from caption.tensor_tree import map_tensors

if TYPE_CHECKING:
    from caption.captioner import Captioner
    from caption.data.decoding import Photo


@dataclass(frozen=True)
class Permutation(PerWord):
    """N words, each said again under other maps: "permuted", "uniform", "other word", "other image".

    NaN where there is no other: for the only word of a caption, and for the only caption of a batch.
    """

    log_probs: np.ndarray
    """(N,) log p of the word as the model said it."""
    falls: Mapping[str, np.ndarray]
    """(N,) how much log p of the word falls, in nats; the mean over draws."""
    distances: Mapping[str, np.ndarray]
    """(N,) total variation between the two distributions over the next word, 0 to 1."""
    changed: Mapping[str, np.ndarray]
    """(N,) the share of the draws in which another word becomes the likeliest."""


def permute(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    draws: int = 10,
    seed: int = 0,
    batch_size: int = 32,
) -> Permutation:
    """Say every word of the captions of some photos again under other maps.

    Args:
        captioner, photos, captions, batch_size: see `replay.sentences`. The end word is not measured; another image is
            one of the same batch.
        draws: permutations of each word's maps.
        seed: for the permutations, and for which other word is taken.

    Raises:
        UserError: the decoder has no attention.
        ValueError: photos and captions differ in number.
    """
    generator = torch.Generator().manual_seed(seed)
    replay = Replay(captioner.decoder)
    found = Collected()
    for batch in sentences(captioner, photos, captions, batch_size):
        own = replay.maps(batch)
        for moment in replay.moments(batch):
            measures = {("log_prob", ""): moment.of_word(moment.log_probs[:, None])[:, 0]}
            for name, (maps, possible) in _others(replay, moment, batch, own, draws, generator).items():
                for measure, measured in _compare(moment, replay.say(moment, maps)).items():
                    measures[measure, name] = measured.masked_fill(~possible, torch.nan)
            found.add(batch, moment.rows, moment.step, measures)
    log_probs = found.of("log_prob").get("", np.zeros(0))
    falls, distances, changed = map(found.of, ("fall", "distance", "changed"))
    return Permutation(found.words, found.images, log_probs, falls, distances, changed)


def permuted(replay: Replay, moment: Moment, maps: Maps, draws: int, generator: torch.Generator) -> Maps:
    """Maps with K = 1 -> with K = `draws`, the regions of every grid permuted.

    A draw permutes all maps on one grid alike: a region that has the weight of another has it from all heads.
    """
    shuffles: dict[Grid, Tensor] = {}

    def shuffle(weights: Tensor, grid: Grid) -> Tensor:
        if grid not in shuffles:
            shape = (len(weights), draws, weights.shape[-1])
            shuffles[grid] = torch.rand(shape, generator=generator).to(weights.device).argsort(-1)
        return weights.gather(-1, spread(shuffles[grid], weights).expand_as(weights))

    wide = map_tensors(lambda tensor: tensor.expand(-1, draws, *tensor.shape[2:]), maps)
    return replay.over_grids(shuffle, moment, wide)


def _others(
    replay: Replay, moment: Moment, batch: Sentences, own: Maps, draws: int, generator: torch.Generator
) -> dict[str, tuple[Maps, Tensor]]:
    """Other maps for a moment by name, and (B',) bool whether there is another word, or image.

    `own` (B, T, ...) are the model's maps of all words of the batch; `draws` is the K of the permutations.
    """
    shuffled = permuted(replay, moment, moment.maps, draws, generator)
    even = replay.over_grids(lambda each, _: (sums(each) / each.shape[-1]).expand_as(each), moment)
    rows, lengths = moment.rows, batch.lengths[moment.rows]
    shift = 1 + (torch.rand(len(rows), generator=generator).to(rows.device) * (lengths - 1)).long()
    # The next sentence of the batch that has any words, at the same step or its last.
    told = batch.lengths.nonzero().squeeze(1)
    giver = told[(torch.searchsorted(told, rows) + 1) % len(told)]
    always = torch.ones_like(rows, dtype=torch.bool)
    return {
        "permuted": (shuffled, always),
        "uniform": (even, always),
        "other word": (at(own, rows, (moment.step + shift) % lengths), lengths > 1),
        "other image": (at(own, giver, (batch.lengths[giver] - 1).clamp_max(moment.step)), giver != rows),
    }


def at(maps: Maps, rows: Tensor, steps: Tensor) -> Maps:
    """Maps (B, T, ...) of whole sentences -> those of some of their words (N,), with K = 1."""
    return map_tensors(lambda tensor: tensor[rows, steps][:, None], maps)


def _compare(moment: Moment, log_probs: Tensor) -> dict[str, Tensor]:
    """(B', K, V) under other maps -> (B',) each, means over K."""
    before = moment.log_probs[:, None]
    return {
        "fall": (moment.of_word(before) - moment.of_word(log_probs)).mean(-1),
        "distance": (before.exp() - log_probs.exp()).abs().sum(-1).mean(-1) / 2,
        "changed": (before.argmax(-1) != log_probs.argmax(-1)).float().mean(-1),
    }
