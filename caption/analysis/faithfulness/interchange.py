"""Interchange of attention between two words of a caption: does the word follow the map?

In "a red circle above a blue square", the step of "red" is run again with the maps of "blue". If the model then says
"blue", the word depends on the attended place: an interchange intervention (Geiger et al. 2021, "Causal Abstractions of
Neural Networks") on attention. It tests more than a permutation, which shows only that a word is lost: here the word
that must take its place is known beforehand. Only one step is changed at a time.

    exchanged = interchange(captioner, "scene.png", ["red", "blue", "green"])
    exchanged.follows["of the other"].mean()      # how often the other word became the likeliest
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from caption.analysis.faithfulness.permutation import maps_at, permuted
from caption.analysis.per_word import Measurements, PerWord, check_words
from caption.analysis.replay import Replay, Sentences, sentences
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.tensor_tree import combine
from caption.data.photos import Photo
from caption.results.caption import Caption

WEIGHTS = ("its own", "of the other", "of the other, permuted")
"""The maps with which each step is run again. The last are as concentrated as the other's, but lie elsewhere."""


@dataclass(frozen=True, repr=False)
class Interchange(PerWord):
    """N ordered pairs of different words of one caption; `words` are those whose step is run again."""

    others: np.ndarray
    """(N,) str: the words whose maps they get."""
    follows: Mapping[str, np.ndarray]
    """(N,) by name of the maps, see `WEIGHTS`: the share of the draws in which the other word is the likeliest."""
    stays: Mapping[str, np.ndarray]
    """(N,) the share in which the word itself is."""
    leads: Mapping[str, np.ndarray]
    """(N,) log p of the other word less that of the word itself, in nats; the mean over draws."""

    @property
    def labels(self) -> Sequence[str]:
        return [f"{word} → {source}" for word, source in zip(self.words, self.others, strict=True)]

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """How often the other word becomes the likeliest, by the map."""
        return self.follows


def interchange(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    words: Collection[str],
    captions: Iterable[Caption] | None = None,
    draws: int = 10,
    seed: int = 0,
    batch_size: int = 32,
) -> Interchange:
    """Run the steps of words again with the maps of other words, for all pairs of different words of a caption.

    Args:
        captioner, photos, captions, batch_size: see `replay.sentences`.
        words: the class, such as the names of colours; a caption needs two of them.
        draws: permutations of each word's maps.
        seed: for the permutations.

    Raises:
        UserError: the decoder has no attention, or no caption has two different words of the class; `words` is one
            text; `draws` is below 1.
        ValueError: photos and captions differ in number.
    """
    check_words(words)
    generator = torch.Generator().manual_seed(seed)
    replay = Replay(captioner.decoder)
    measured = Measurements()
    sources: list[str] = []
    for batch in sentences(captioner, photos, captions, batch_size):
        maps, pairs = replay.maps(batch), _pairs(batch, words)
        for step in replay.steps(batch):
            rows, source_steps = pairs[:, pairs[1] == step.number][[0, 2]]
            if not len(rows):
                continue
            of_pairs = step.take(torch.searchsorted(step.rows, rows))
            of_sources = maps_at(maps, rows, source_steps)
            candidates = (of_pairs.maps, of_sources, permuted(replay, of_pairs, of_sources, draws, generator))
            log_probs = replay.rerun(of_pairs, combine(lambda tensors: torch.cat(tensors, 1), candidates))
            sources += [
                batch.captions[row].words[source]
                for row, source in zip(rows.tolist(), source_steps.tolist(), strict=True)
            ]
            values = _measures(log_probs, of_pairs.words[:, None], batch.words[rows, source_steps][:, None])
            measured.add(batch, of_pairs, values)
    if not sources:
        raise UserError(
            f"no caption has two of {', '.join(words) or '(no words)'}: name words of one caption, or give more photos"
        )
    return measured.result(Interchange, {}, others=np.array(sources))


def _pairs(batch: Sentences, words: Collection[str]) -> Tensor:
    """(3, P) int64: sentence, step, and another step of the sentence with a different word of the class."""
    pairs = []
    for row, (caption, ids) in enumerate(zip(batch.captions, batch.words.tolist(), strict=True)):
        steps = [step for step, word in enumerate(caption.words) if word in words]
        pairs += [(row, step, source) for step in steps for source in steps if ids[step] != ids[source]]
    return torch.tensor(pairs, dtype=torch.int64, device=batch.words.device).reshape(-1, 3).T


def _measures(log_probs: Tensor, words: Tensor, sources: Tensor) -> dict[str, dict[str, Tensor]]:
    """(P, 2 + draws, V) under the maps of `WEIGHTS`; words and sources (P, 1) -> (P,) by measure and these names."""
    likeliest, log_probs = log_probs.argmax(-1), log_probs.double()
    chosen = [
        log_probs.gather(2, ids[..., None].expand(*likeliest.shape, 1))[..., 0] for ids in (sources, words)
    ]
    measures = {
        "follows": (likeliest == sources).double(),
        "stays": (likeliest == words).double(),
        "leads": chosen[0] - chosen[1],
    }
    sizes = 1, 1, log_probs.shape[1] - 2
    return {
        measure: {name: part.mean(-1) for name, part in zip(WEIGHTS, values.split(sizes, -1), strict=True)}
        for measure, values in measures.items()
    }
