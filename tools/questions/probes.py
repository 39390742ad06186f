"""Probes: networks that read the relation of two objects from the regions of one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.captioner import Captioner
from caption.metrics.significance import Estimate, estimate
from tools.questions.bench import Sentence, replayed
from tools.questions.zones import PLACES, at_relations, even_on, zones

WIDTH, EPOCHS, RATE, DECAY = 64, 200, 3e-3, 1e-3
"""Of a probe: hidden units, passes over all examples at once, learning rate and weight decay of AdamW."""


class Probed(NamedTuple):
    """How often probes are right on the test sentences."""

    right: Mapping[str, tuple[Estimate, Estimate]]
    """By place: from the mean of its regions alone, and with h[t-1] as a further input."""
    most_frequent: float
    """The share of the most frequent word."""


class _Examples(NamedTuple):
    places: dict[str, Tensor]
    """(N, D) the mean region of each place."""
    memories: Tensor
    """(N, H) h[t-1]."""
    words: Tensor
    """(N,) int64 the word that decides the relation."""
    images: np.ndarray
    """(N,) the scene."""


def probe(captioner: Captioner, training: Sequence[Sentence], test: Sequence[Sentence]) -> Probed:
    """Train a probe for each place, with and without the LSTM's state before the word, and test it."""
    learned, asked = _examples(captioner, training), _examples(captioner, test)
    right = {}
    for place in learned.places:
        pair = []
        for remembering in (False, True):
            inputs = [
                torch.cat((of.places[place], of.memories), -1) if remembering else of.places[place]
                for of in (learned, asked)
            ]
            found = _fitted(inputs[0], learned.words)(inputs[1]).argmax(-1)
            pair.append(estimate((found == asked.words).double().numpy(), asked.images))
        right[place] = (pair[0], pair[1])
    return Probed(right, float(asked.words.bincount().max() / len(asked.words)))


@torch.no_grad()
def _examples(captioner: Captioner, given: Sequence[Sentence]) -> _Examples:
    memories, places, words, images = [], [], [], []
    for replay, batch in replayed(captioner, given):
        for step in replay.steps(batch):
            step, of_step = at_relations(step, given[batch.first :])
            if not of_step:
                continue
            (view,) = step.views
            parts = torch.from_numpy(np.stack([zones(captioner, view.grid, each) for each in of_step]))
            maps = torch.cat((step.weights[:, None], even_on(parts).float()), 1)
            places.append(maps @ view.vectors)
            memories.append(step.state.carried.hidden[:, 0])
            words.append(step.words)
            images += [each.image for each in of_step]
    by_place = dict(zip(PLACES, torch.cat(places).unbind(1), strict=True))
    nothing = {"nothing": torch.zeros_like(by_place[PLACES[0]])}
    return _Examples(nothing | by_place, torch.cat(memories), torch.cat(words), np.array(images))


def _fitted(inputs: Tensor, words: Tensor) -> nn.Module:
    """A network of one hidden layer, trained to give the words."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.BatchNorm1d(inputs.shape[1]), nn.Linear(inputs.shape[1], WIDTH), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(WIDTH, int(words.max()) + 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs), words).backward()
        optimizer.step()
    return network.eval()
