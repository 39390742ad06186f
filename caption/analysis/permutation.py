"""What the model says when its weights are others: permuted, even, of another word, of another image.

If a word comes out the same whatever α is, α is no reason for it (Jain and Wallace 2019, "Attention is not
Explanation"). If it changes, what is read matters to this model; that no other α would do as well is not shown
(Wiegreffe and Pinter 2019, "Attention is not not Explanation"). One step is changed at a time, all before it stays.

    swapped = permute(captioner, "photo.jpg")
    swapped.falls["permuted"].mean()          # nats that the words lose
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from caption.analysis.replay import Moment, Replay, Sentences, sentences
from caption.analysis.words import PerWord
from caption.result import Caption

if TYPE_CHECKING:
    from caption.captioner import Captioner
    from caption.result import Photo


@dataclass(frozen=True)
class Permutation(PerWord):
    """N words, each said again under other weights: "permuted", "uniform", "other word", "other image".

    Other words and images are there where they can be: NaN for the only word of a caption, the only caption of a batch.
    """

    log_probs: np.ndarray
    """(N,) log p of the word as the model said it."""
    falls: Mapping[str, np.ndarray]
    """(N,) by how much log p of the word falls, in nats; the mean over draws."""
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
    """Say every word of the captions of some photos again under other weights.

    Args:
        captioner: the model.
        photos: one or many; another image is one of the same batch.
        captions: what was said about each; None = what the model says. The end word is not measured.
        draws: permutations of each word's weights.
        seed: for the permutations and for which other word is taken.
        batch_size: photos at once.

    Raises:
        UserError: the model's attention cannot be edited, see `ForcedAttention`.
        ValueError: photos and captions differ in number.
    """
    generator = torch.Generator().manual_seed(seed)
    replay = Replay(captioner.decoder)
    words: list[str] = []
    images: list[int] = []
    said: list[np.ndarray] = []
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for batch in sentences(captioner, photos, captions, batch_size):
        own = replay.weights(batch)
        for moment in replay.moments(batch):
            words += batch.said(moment.rows, moment.step)
            images += (moment.rows + batch.first).tolist()
            said.append(_numpy(moment.of_word(moment.log_probs[:, None])[:, 0]))
            for name, weights in _others(moment, batch, own, draws, generator).items():
                for measure, values in _compare(moment, replay.say(moment, weights)).items():
                    possible = weights.isfinite().all(-1).all(-1)
                    values = values.masked_fill(~possible, torch.nan)
                    found.setdefault((measure, name), []).append(_numpy(values))
    joined = {key: np.concatenate(values) for key, values in found.items()}
    falls, distances, changed = (
        {name: values for (measure, name), values in joined.items() if measure == wanted}
        for wanted in ("fall", "distance", "changed")
    )
    log_probs = np.concatenate(said) if said else np.zeros(0)
    return Permutation(tuple(words), np.array(images, dtype=np.int64), log_probs, falls, distances, changed)


def _others(
    moment: Moment, batch: Sentences, own: Tensor, draws: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Weights (B', K, L) by name; NaN where there is nothing to take them from.

    Args:
        moment: whose weights are exchanged.
        batch: the sentences.
        own: (B, T, L) the model's weights of all their words.
        draws: K of the permutations.
        generator: for the draws.
    """
    weights = moment.weights
    shape = (len(weights), draws, weights.shape[1])
    shuffle = torch.rand(shape, generator=generator).to(weights.device).argsort(-1)
    rows, lengths = moment.rows, batch.lengths[moment.rows]
    shift = 1 + (torch.rand(len(rows), generator=generator).to(weights.device) * (lengths - 1)).long()
    another = own[rows, (moment.step + shift) % lengths]
    # The next sentence of the batch that has any words, at the same step or its last.
    told = batch.lengths.nonzero().squeeze(1)
    giver = told[(torch.searchsorted(told, rows) + 1) % len(told)]
    elsewhere = own[giver, (batch.lengths[giver] - 1).clamp_max(moment.step)]
    return {
        "permuted": weights[:, None].expand(shape).gather(-1, shuffle),
        "uniform": torch.full_like(weights, 1 / weights.shape[1])[:, None],
        "other word": torch.where((lengths > 1)[:, None], another, torch.nan)[:, None],
        "other image": torch.where((giver != rows)[:, None], elsewhere, torch.nan)[:, None],
    }


def _compare(moment: Moment, log_probs: Tensor) -> dict[str, Tensor]:
    """(B', K, V) under other weights -> (B',) each, means over K."""
    before = moment.log_probs[:, None]
    return {
        "fall": (moment.of_word(before) - moment.of_word(log_probs)).mean(-1),
        "distance": (before.exp() - log_probs.exp()).abs().sum(-1).mean(-1) / 2,
        "changed": (before.argmax(-1) != log_probs.argmax(-1)).float().mean(-1),
    }


def _numpy(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
