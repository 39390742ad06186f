"""Steps run again with other maps: permuted, even, of another word, of another image.

If a word is the same for every α, α is not a reason for it (Jain and Wallace 2019, "Attention is not
Explanation"). If it changes, the map matters to this model; this does not show that no other α would do as well
(Wiegreffe and Pinter 2019, "Attention is not not Explanation"). Only one step is changed at a time.

    permuted = permute(captioner, "photo.jpg")
    permuted.falls["permuted"].mean()          # nats that the words lose
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from caption.analysis.map_arithmetic import resampled, sums, with_map_dims
from caption.analysis.per_word import Measurements, PerWord
from caption.analysis.replay import Maps, Replay, Sentences, Step, sentences
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import Grid
from caption.core.tensor_tree import map_tensors
from caption.data.photos import Photo
from caption.results.caption import Caption


@dataclass(frozen=True, repr=False)
class Permutation(PerWord):
    """N words, each run again with other maps: "permuted", "uniform", "other word", "other image".

    NaN without another word or image: for the only word of a caption, and for the captions of a batch's only photo.
    """

    log_probs: np.ndarray
    """(N,) log p of the word with the model's own maps."""
    falls: Mapping[str, np.ndarray]
    """(N,) how much log p of the word falls, in nats; the mean over draws."""
    distances: Mapping[str, np.ndarray]
    """(N,) total variation between the two distributions over the next word, 0 to 1."""
    changed: Mapping[str, np.ndarray]
    """(N,) the share of the draws in which another word becomes the likeliest."""

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """How much log p of the word falls with other maps, in nats."""
        return self.falls


def permute(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    draws: int = 10,
    seed: int = 0,
    batch_size: int = 32,
) -> Permutation:
    """Run the step of every word of the captions of some photos again with other maps.

    Args:
        captioner, photos, captions, batch_size: see `replay.sentences`. The end word is not measured; another image is
            one of the same batch.
        draws: permutations of each word's maps.
        seed: for the permutations, and for drawing the other words.

    Raises:
        UserError: the decoder has no attention.
        ValueError: photos and captions differ in number.
    """
    generator = torch.Generator().manual_seed(seed)
    replay = Replay(captioner.decoder)
    measured = Measurements()
    for batch in sentences(captioner, photos, captions, batch_size):
        maps_of_batch = replay.maps(batch)
        for step in replay.steps(batch):
            measures: dict[str, dict[str, Tensor]] = {"falls": {}, "distances": {}, "changed": {}}
            candidates = _other_maps(replay, step, batch, maps_of_batch, draws, generator)
            for name, (maps, is_possible) in candidates.items():
                for measure, values in _compare(step, replay.rerun(step, maps)).items():
                    measures[measure][name] = values.masked_fill(~is_possible, torch.nan)
            measured.add(batch, step, {"log_probs": step.log_prob, **measures})
    none = {"log_probs": np.zeros(0), "falls": {}, "distances": {}, "changed": {}}
    return measured.result(Permutation, none)


def permuted(replay: Replay, step: Step, maps: Maps, draws: int, generator: torch.Generator) -> Maps:
    """Maps with K = 1 -> with K = `draws`, the regions of every grid permuted; those that are masked keep their place.

    A draw permutes all maps on one grid alike: a region that has the weight of another has it from all heads.
    """
    if draws < 1:
        raise UserError(f"maps are permuted {draws} times: once is the least")
    shuffles: dict[Grid, Tensor] = {}

    def shuffle(weights: Tensor, grid: Grid) -> Tensor:
        if grid not in shuffles:
            drawn = torch.rand((len(weights), draws, weights.shape[-1]), generator=generator)
            real = real_regions(step, grid)[:, None].expand(drawn.shape)
            # Real regions come first in both orders: the n-th of one gets the weight of the n-th of the other.
            sources = drawn.to(weights.device).where(real, 2.0).argsort(-1)
            targets = (~real).int().argsort(dim=-1, stable=True)
            shuffles[grid] = torch.empty_like(sources).scatter_(-1, targets, sources)
        return weights.gather(-1, with_map_dims(shuffles[grid], weights).expand_as(weights))

    wide = map_tensors(lambda tensor: tensor.expand(-1, draws, *tensor.shape[2:]), maps)
    return replay.over_grids(shuffle, step, wide)


def real_regions(step: Step, grid: Grid) -> Tensor:
    """(B', L) bool: the regions of a grid that the encoder has not masked.

    On a mechanism's own coarser grid, they are those that have a part in a real region of the first view.
    """
    view = next((view for view in step.views if view.grid == grid), step.views[0])
    real = torch.ones_like(view.vectors[..., 0], dtype=torch.bool) if view.mask is None else view.mask
    return resampled(real.float(), view.grid, grid) > 0


def _even(step: Step, weights: Tensor, grid: Grid) -> Tensor:
    """Maps (B', K, ..., L) with their sum in equal parts on all real regions."""
    real = with_map_dims(real_regions(step, grid)[:, None].to(weights), weights)
    return sums(weights) / real.sum(-1, keepdim=True) * real


def _other_maps(
    replay: Replay, step: Step, batch: Sentences, maps: Maps, draws: int, generator: torch.Generator
) -> dict[str, tuple[Maps, Tensor]]:
    """Other maps for a step by name, and (B',) bool whether there is another word, or image.

    `maps` (B, T, ...) are the model's maps of all words of the batch; `draws` is the K of the permutations.
    """
    shuffled = permuted(replay, step, step.maps, draws, generator)
    even = replay.over_grids(partial(_even, step), step)
    rows, lengths = step.rows, batch.lengths[step.rows]
    shift = 1 + (torch.rand(len(rows), generator=generator).to(rows.device) * (lengths - 1)).long()
    # The next sentence of the batch that has any words and another photo, at the same step or its last.
    sentence = torch.arange(len(batch.words), device=rows.device)
    is_other = (batch.images[rows, None] != batch.images) & (batch.lengths > 0)
    distance = (sentence - rows[:, None]) % len(sentence)
    donors = distance.masked_fill(~is_other, len(sentence)).argmin(1)
    always = torch.ones_like(rows, dtype=torch.bool)
    return {
        "permuted": (shuffled, always),
        "uniform": (even, always),
        "other word": (maps_at(maps, rows, (step.number + shift) % lengths), lengths > 1),
        "other image": (
            maps_at(maps, donors, (batch.lengths[donors] - 1).clamp_max(step.number)),
            is_other.any(1),
        ),
    }


def maps_at(maps: Maps, rows: Tensor, steps: Tensor) -> Maps:
    """Maps (B, T, ...) of whole sentences -> those of some of their words (N,), with K = 1."""
    return map_tensors(lambda tensor: tensor[rows, steps][:, None], maps)


def _compare(step: Step, log_probs: Tensor) -> dict[str, Tensor]:
    """(B', K, V) under other maps -> (B',) each, means over K."""
    likeliest = step.log_probs.argmax(-1, keepdim=True)
    return {
        "falls": (step.log_prob[:, None] - step.of_word(log_probs)).mean(-1),
        "distances": step.distance(log_probs).mean(-1),
        "changed": (likeliest != log_probs.argmax(-1)).float().mean(-1),
    }
