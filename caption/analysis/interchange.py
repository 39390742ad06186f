"""Does the word follow the look? Two words of a caption exchange their maps, and what is said is watched.

In "a red circle above a blue square", "red" is said again with the weights of "blue". If the model then says "blue",
the word comes from the place that is looked at: an interchange intervention (Geiger et al. 2021, "Causal Abstractions
of Neural Networks"), made on attention. It asks more than a permutation does, which shows that a word breaks: here it
is told beforehand which word must come instead. One step is changed at a time, all before it stays.

    swapped = exchange(captioner, "scene.png", ["red", "blue", "green"])
    swapped.follows["of the other"].mean()      # how often the other word became the likeliest
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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

WEIGHTS = ("its own", "of the other", "of the other, permuted")
"""Under which weights each word is said again. The last keeps how sharp the other's map is, but not where it lies."""


@dataclass(frozen=True)
class Exchange(PerWord):
    """N ordered pairs of different words of one caption; `words` are those whose step is said again."""

    others: np.ndarray
    """(N,) str: the words whose weights they get."""
    follows: Mapping[str, np.ndarray]
    """(N,) by name of the weights, see `WEIGHTS`: the share of the draws in which the other word is the likeliest."""
    stays: Mapping[str, np.ndarray]
    """(N,) in which the word itself is."""
    leads: Mapping[str, np.ndarray]
    """(N,) log p of the other word less that of the word itself, in nats; the mean over draws."""


def exchange(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    words: Collection[str],
    captions: Iterable[Caption] | None = None,
    draws: int = 10,
    seed: int = 0,
    batch_size: int = 32,
) -> Exchange:
    """Say words again with the weights of others of their kind, for all pairs of different ones in each caption.

    Args:
        captioner: the model.
        photos: one or many.
        words: which may stand for each other, such as the names of colours.
        captions: what was said about each photo; None = what the model says.
        draws: permutations of each map.
        seed: for the permutations.
        batch_size: photos at once.

    Raises:
        UserError: the model's attention cannot be edited, see `ForcedAttention`.
        ValueError: photos and captions differ in number.
    """
    generator = torch.Generator().manual_seed(seed)
    replay = Replay(captioner.decoder)
    own: list[str] = []
    others: list[str] = []
    images: list[int] = []
    found: list[Tensor] = []
    for batch in sentences(captioner, photos, captions, batch_size):
        maps, pairs = replay.weights(batch), _pairs(batch, words)
        for moment in replay.moments(batch):
            rows, steps = pairs[:, pairs[1] == moment.step][[0, 2]]
            if not len(rows):
                continue
            own += batch.said(rows, moment.step)
            others += [
                batch.captions[row].words[step]
                for row, step in zip(rows.tolist(), steps.tolist(), strict=True)
            ]
            images += (rows + batch.first).tolist()
            asked = moment.take(torch.searchsorted(moment.rows, rows))
            found.append(_swap(replay, asked, maps[rows, steps], batch.words[rows, steps], draws, generator))
    measured = torch.cat(found) if found else torch.zeros(0, 3, len(WEIGHTS))
    follows, stays, leads = (
        dict(zip(WEIGHTS, values.T, strict=True)) for values in measured.cpu().numpy().swapaxes(0, 1)
    )
    return Exchange(
        tuple(own), np.array(images, dtype=np.int64), np.array(others, dtype=str), follows, stays, leads
    )


def _pairs(batch: Sentences, words: Collection[str]) -> Tensor:
    """(3, P) int64: sentence, step, and another step of it at which a different one of the words is said."""
    pairs = []
    for row, (caption, ids) in enumerate(zip(batch.captions, batch.words.tolist(), strict=True)):
        steps = [step for step, word in enumerate(caption.words) if word in words]
        pairs += [(row, step, other) for step in steps for other in steps if ids[step] != ids[other]]
    return torch.tensor(pairs, dtype=torch.int64, device=batch.words.device).reshape(-1, 3).T


def _swap(
    replay: Replay, moment: Moment, maps: Tensor, others: Tensor, draws: int, generator: torch.Generator
) -> Tensor:
    """P words again under the maps (P, L) of the words others (P,) -> (P, 3, 3) float64: measures by weights."""
    shuffle = torch.rand((len(maps), draws, maps.shape[1]), generator=generator).to(maps.device).argsort(-1)
    permuted = maps[:, None].expand(shuffle.shape).gather(-1, shuffle)
    log_probs = replay.say(moment, torch.cat((moment.weights[:, None], maps[:, None], permuted), 1))
    likeliest = log_probs.argmax(-1)
    other = moment._replace(words=others)
    values = torch.stack(
        (
            (likeliest == others[:, None]).double(),
            (likeliest == moment.words[:, None]).double(),
            other.of_word(log_probs).double() - moment.of_word(log_probs).double(),
        ),
        1,
    )
    return torch.stack([part.mean(-1) for part in values.split((1, 1, draws), -1)], -1)
